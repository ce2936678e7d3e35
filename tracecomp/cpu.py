"""The names of ``torch.cpu``: the device that is always there, in the words of the others."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext


def is_available() -> bool:
    return True


def is_initialized() -> bool:
    return True


def device_count() -> int:
    return 1


def current_device() -> str:
    return "cpu"


def set_device(device: object) -> None:
    """Nothing: there is one."""


def synchronize(device: object = None) -> None:
    """Nothing: what was called is done."""


class Stream:
    """The one order in which things happen."""

    def __init__(self, priority: int = -1) -> None: ...

    def wait_stream(self, stream: object) -> None: ...

    def synchronize(self) -> None: ...


def current_stream(device: object = None) -> Stream:
    return Stream()


def stream(stream: object = None) -> AbstractContextManager[None]:
    return nullcontext()
