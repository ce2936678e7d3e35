"""The settings file of a model: ``NAME.json`` next to a model file, or ``model.json`` in the folder of a version."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar


@dataclass(frozen=True)
class Settings:
    """How a model is loaded and batched.

    ``digest`` is what saving a file of machine code returned. ``max_batch_size`` is the most rows that are computed
    together; 1 or less turns batching off. ``max_delay_ms`` is how long a request may wait for others. ``max_queue`` is
    the most waiting requests. ``threads`` are those of the worker process; by default all cores. A process that
    computes longer than ``max_seconds`` is restarted; None sets no limit. ``max_memory_mb`` limits the process's data
    (RLIMIT_DATA): its heap and private memory, without mapped files. ``shapes`` are sizes for the first runs of
    inputs with further open sizes.
    """

    digest: str | None = None
    input_names: list[str] | None = None
    output_names: list[str] | None = None
    max_batch_size: int = 32
    max_delay_ms: float = 0.0
    max_queue: int = 1024
    threads: int | None = None
    max_seconds: float | None = 120.0
    max_memory_mb: int | None = None
    shapes: dict[str, list[int]] = field(default_factory=dict)

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid", "allow_inf_nan": False}

    def __post_init__(self) -> None:
        if self.max_seconds is not None and self.max_seconds <= 0:
            raise ValueError("max_seconds must be positive, or null for no limit")
        if self.max_memory_mb is not None and self.max_memory_mb <= 0:
            raise ValueError("max_memory_mb must be positive, or null for no limit")

    def to_json(self) -> dict[str, Any]:
        """The settings as the worker process gets them."""
        return asdict(self)
