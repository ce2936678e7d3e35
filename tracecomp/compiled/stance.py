"""The behaviour of compiled functions when a call needs a recording: one stance per process, and a limit."""

from __future__ import annotations

from dataclasses import dataclass

STANCES = (
    "default", "eager_then_compile", "aot_eager_then_compile", "force_eager", "eager_on_recompile", "fail_on_recompile",
)  # fmt: skip


@dataclass
class Stance:
    """``name`` is one of ``STANCES``; ``limit`` of recordings of one function, where the program has set one."""

    name: str = "default"
    limit: int | None = None

    def records(self, name: str) -> bool:
        """Whether a call that no recording of function ``name`` fits is recorded; RuntimeError if it may not come."""
        if self.name == "fail_on_recompile":
            raise RuntimeError(f"Detected recompile when torch.compile stance is 'fail_on_recompile': {name}")
        return self.name not in ("eager_on_recompile", "force_eager")


current = Stance()
