"""The meaning of inputs and outputs of an exported graph."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from types import MappingProxyType
from typing import TypeAlias

__all__ = [
    "ArgumentSpec", "ConstantArgument", "ExportBackwardSignature", "ExportGraphSignature", "InputKind", "InputSpec",
    "OutputKind", "OutputSpec", "SymIntArgument", "TensorArgument",
]  # fmt: skip

Constant: TypeAlias = "int | float | bool | str | None"


@dataclass
class TensorArgument:
    """A tensor: the node ``name``."""

    name: str


@dataclass
class SymIntArgument:
    """A size: the node ``name``."""

    name: str


@dataclass
class ConstantArgument:
    """A value of Python's, which the graph holds for."""

    name: str
    value: Constant


ArgumentSpec = TensorArgument | SymIntArgument | ConstantArgument


class InputKind(Enum):
    """Kinds of placeholders."""

    USER_INPUT = auto()
    PARAMETER = auto()
    BUFFER = auto()
    CONSTANT_TENSOR = auto()
    CUSTOM_OBJ = auto()
    TOKEN = auto()


class OutputKind(Enum):
    """Kinds of outputs."""

    USER_OUTPUT = auto()
    LOSS_OUTPUT = auto()
    BUFFER_MUTATION = auto()
    PARAMETER_MUTATION = auto()
    GRADIENT_TO_PARAMETER = auto()
    GRADIENT_TO_USER_INPUT = auto()
    USER_INPUT_MUTATION = auto()
    TOKEN = auto()


@dataclass
class InputSpec:
    """One placeholder; ``target`` is the name of a parameter, buffer or constant in the module."""

    kind: InputKind
    arg: ArgumentSpec
    target: str | None
    persistent: bool | None = None

    def __str__(self) -> str:
        target = "" if self.target is None else f" target='{self.target}'"
        persistent = "" if self.persistent is None else f" persistent={self.persistent}"
        return f"{self.arg.name}: {self.kind.name}{target}{persistent}"


@dataclass
class OutputSpec:
    """One result; ``target`` is the name of the buffer that it becomes."""

    kind: OutputKind
    arg: ArgumentSpec
    target: str | None

    def __str__(self) -> str:
        target = "" if self.target is None else f" target='{self.target}'"
        return f"{self.arg.name}: {self.kind.name}{target}"


@dataclass
class ExportBackwardSignature:
    """The gradients that a graph returns, by name, and its loss."""

    gradients_to_parameters: dict[str, str] = field(default_factory=dict)
    gradients_to_user_inputs: dict[str, str] = field(default_factory=dict)
    loss_output: str = ""


@dataclass
class ExportGraphSignature:
    """The meaning of each placeholder and each result of an exported graph, in order."""

    input_specs: list[InputSpec]
    output_specs: list[OutputSpec]

    def _inputs(self, kind: InputKind) -> dict[str, str]:
        return {s.arg.name: str(s.target) for s in self.input_specs if s.kind is kind}

    def _results(self, kind: OutputKind) -> dict[str, str]:
        return {s.arg.name: str(s.target) for s in self.output_specs if s.kind is kind}

    @property
    def parameters(self) -> Collection[str]:
        """The names of parameters, as in the module."""
        return tuple(self.inputs_to_parameters.values())

    @property
    def buffers(self) -> Collection[str]:
        """The names of buffers, as in the module."""
        return tuple(self.inputs_to_buffers.values())

    @property
    def non_persistent_buffers(self) -> Collection[str]:
        """The names of buffers that are not part of the state."""
        specs = self.input_specs
        return tuple(str(s.target) for s in specs if s.kind is InputKind.BUFFER and s.persistent is False)

    @property
    def lifted_tensor_constants(self) -> Collection[str]:
        """The names of tensors that are neither parameters nor buffers."""
        return tuple(self.inputs_to_lifted_tensor_constants.values())

    @property
    def lifted_custom_objs(self) -> Collection[str]:
        """Empty: graphs take no objects."""
        return ()

    @property
    def user_inputs(self) -> Collection[Constant]:
        """The placeholders of arguments, and the values of those that are constants."""
        args = [s.arg for s in self.input_specs if s.kind is InputKind.USER_INPUT]
        return tuple(a.value if isinstance(a, ConstantArgument) else a.name for a in args)

    @property
    def user_outputs(self) -> Collection[Constant]:
        """The nodes of results, and the values of those that are constants."""
        args = [s.arg for s in self.output_specs if s.kind is OutputKind.USER_OUTPUT]
        return tuple(a.value if isinstance(a, ConstantArgument) else a.name for a in args)

    @property
    def inputs_to_parameters(self) -> Mapping[str, str]:
        """Placeholder -> parameter."""
        return MappingProxyType(self._inputs(InputKind.PARAMETER))

    @property
    def inputs_to_buffers(self) -> Mapping[str, str]:
        """Placeholder -> buffer."""
        return MappingProxyType(self._inputs(InputKind.BUFFER))

    @property
    def inputs_to_lifted_tensor_constants(self) -> Mapping[str, str]:
        """Placeholder -> constant."""
        return MappingProxyType(self._inputs(InputKind.CONSTANT_TENSOR))

    @property
    def buffers_to_mutate(self) -> Mapping[str, str]:
        """Result -> the buffer that it becomes."""
        return MappingProxyType(self._results(OutputKind.BUFFER_MUTATION))

    @property
    def user_inputs_to_mutate(self) -> Mapping[str, str]:
        """Result -> the argument that it becomes."""
        return MappingProxyType(self._results(OutputKind.USER_INPUT_MUTATION))

    @property
    def backward_signature(self) -> ExportBackwardSignature | None:
        """None: a graph computes results."""
        return None

    @property
    def assertion_dep_token(self) -> Mapping[int, str] | None:
        """None: sizes are checked before the graph runs."""
        return None

    def replace_all_uses(self, old: str, new: str) -> None:
        """Rename a node."""
        for arg in [*(s.arg for s in self.input_specs), *(s.arg for s in self.output_specs)]:
            if arg.name == old:
                arg.name = new

    def __str__(self) -> str:
        inputs = "\n".join(map(str, self.input_specs))
        return f"\n# inputs\n{inputs}\n\n# outputs\n" + "\n".join(map(str, self.output_specs)) + "\n"
