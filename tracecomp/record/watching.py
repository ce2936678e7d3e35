"""Protocols through which instruction and call handlers report to the observer, which is in a higher layer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from types import CellType, FrameType, ModuleType
from typing import Any, Protocol

from tracecomp.base.capture_guide import Section
from tracecomp.eager.tensor import Tensor
from tracecomp.record.guards.read_steps import SomeStep
from tracecomp.record.guards.reads import Read, Reads


class Running(Protocol):
    """The interface for the frame of the compiled function."""

    running: FrameType | None


class Refusing(Protocol):
    """The recorder's interface for refusals."""

    @property
    def refusals(self) -> Running: ...

    def refuse_here(self, what: str, section: Section, remedy: str = "") -> None: ...


class Changing(Protocol):
    """The interface for a program's changes."""

    def change(self, owner: object, written: SomeStep | None, apply: Callable[..., object], *args: Any) -> None: ...

    def set_on_tensor(self, t: Tensor, name: str, value: object) -> None: ...

    def set_cell(self, cell: CellType, name: str, value: object) -> None: ...

    def printed(
        self, consume: Callable[[object], object], args: Sequence[object], kwargs: Mapping[str, object]
    ) -> None: ...

    def warned(self, message: object, category: type[Warning], level: int) -> None: ...

    def sorts(self, owner: list[Any]) -> None: ...

    def shown(self, frame: FrameType) -> None: ...

    def looked_up(self, count: Callable[[], object]) -> None: ...

    def after_call(self) -> None: ...


class Watching(Protocol):
    """The observer's interface for a program's reads."""

    @property
    def recorder(self) -> Refusing: ...

    @property
    def reads(self) -> Reads: ...

    @property
    def known(self) -> MutableMapping[int, Read]:
        """Objects that were there before the call, by identity."""

    @property
    def made(self) -> set[int]:
        """Objects that were not."""

    @property
    def making(self) -> MutableMapping[int, type]:
        """The classes whose objects calls make that now run, by the frames of these calls."""

    @property
    def changed(self) -> Mapping[int, Any]:
        """Containers that the call changes, as they were before."""

    @property
    def written(self) -> set[tuple[int, Any]]:
        """Writes of the call: identities of objects, and steps."""

    @property
    def changes(self) -> Changing: ...

    def release(self) -> None: ...

    def consume_state(self, owner: object) -> None: ...

    def step(self, owner: Read, step: SomeStep, value: object, where: str) -> None: ...

    def reach(self, value: object, read: Read) -> None: ...

    def global_name(self, frame: FrameType, name: str) -> None: ...

    def library_global(self, space: dict[str, Any], name: str) -> None: ...

    def cell(self, cell: CellType, name: str) -> None: ...

    def attribute(self, owner: object, name: str) -> None: ...

    def attribute_of_base(self, kind: type, owner: object, name: str) -> None: ...

    def module_imported(self, module: ModuleType) -> None: ...

    def item(self, owner: object, key: object) -> None: ...

    def contents(self, value: object) -> None: ...

    def consume(self, value: object, depth: int = 8, own: bool = False) -> None: ...

    def hand(self, value: object) -> None: ...

    def pin(self, value: object) -> None: ...

    def block_entered(self, manager: object) -> None: ...

    def error_caught(self, error: BaseException | None) -> None: ...

    def same(self, a: object, b: object) -> None: ...

    def looked_up(self, owner: object, key: object) -> None: ...

    def which(self, value: object) -> None: ...
