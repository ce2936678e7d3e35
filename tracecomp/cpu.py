"""The names of ``torch.cpu``: the device that is always available, with the interface of other devices."""

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
    """Do nothing: there is one device."""


def synchronize(device: object = None) -> None:
    """Do nothing: calls are synchronous."""


class Stream:
    """The single stream of execution."""

    def __init__(self, priority: int = -1) -> None: ...

    def wait_stream(self, stream: object) -> None: ...

    def synchronize(self) -> None: ...


def current_stream(device: object = None) -> Stream:
    return Stream()


def stream(stream: object = None) -> AbstractContextManager[None]:
    return nullcontext()
