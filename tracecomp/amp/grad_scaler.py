"""``GradScaler``: losses scaled up so that small gradients survive float16, and steps are skipped when they
overflow."""

from __future__ import annotations

from enum import Enum
from typing import Any

from tracecomp.base.errors import type_name
from tracecomp.base.user_warnings import warn_as_pytorch
from tracecomp.eager.device import device as Device
from tracecomp.eager.modes import no_grad
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.ir.types import float32


class OptState(Enum):
    """The state of an optimizer's gradients since the last ``update``."""

    READY = 0
    UNSCALED = 1
    STEPPED = 2


class GradScaler:
    """``scale(loss).backward()``, then ``step(optimizer)``, then ``update()``.

    The scale grows by ``growth_factor`` after ``growth_interval`` steps in a row without infinities, and shrinks by
    ``backoff_factor`` after one with infinities. On an unavailable device the scaler is disabled and changes nothing.
    """

    def __init__(
        self, device: str = "cuda", init_scale: float = 2.0**16, growth_factor: float = 2.0,
        backoff_factor: float = 0.5, growth_interval: int = 2000, enabled: bool = True,
    ) -> None:  # fmt: skip
        self._device = Device(device).type
        if self._device != "cpu" and enabled:
            warn_as_pytorch(f"torch.{self._device}.amp.GradScaler is enabled, but there is no such device. Disabling.")
            enabled = False
        if enabled and growth_factor <= 1.0:
            raise AssertionError("The growth factor must be > 1.0.")
        if enabled and backoff_factor >= 1.0:
            raise AssertionError("The backoff factor must be < 1.0.")
        self._enabled = enabled
        self._growth_factor, self._backoff_factor = growth_factor, backoff_factor
        self._growth_interval = growth_interval
        self._scale: Any = T.tensor(float(init_scale), dtype=float32)
        self._good_steps: Any = T.tensor(0.0, dtype=float32)
        self._found: dict[Any, Any] = {}
        self._stage: dict[Any, OptState] = {}

    def scale(self, outputs: object) -> Any:
        """Multiply a tensor, or nested tensors, by the scale."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, Tensor):
            return outputs * self._scale
        if isinstance(outputs, tuple | list):
            return type(outputs)(self.scale(x) for x in outputs)
        raise ValueError(f"outputs must be a Tensor or an iterable of Tensors, not {type_name(outputs)}")

    def unscale_(self, optimizer: Any) -> None:
        """Divide the gradients of ``optimizer`` by the scale; RuntimeError if that has been done since ``update``."""
        if not self._enabled:
            return
        stage = self._stage.get(optimizer, OptState.READY)
        if stage == OptState.UNSCALED:
            raise RuntimeError("unscale_() has already been called on this optimizer since the last update().")
        if stage == OptState.STEPPED:
            raise RuntimeError("unscale_() is being called after step().")
        found: Any = T.tensor(False)
        with no_grad():
            inverse = (1.0 / self._scale.double()).float()
            for group in optimizer.param_groups:
                for p in group["params"]:
                    if p.grad is not None:
                        found = found | ~T.isfinite(p.grad).all()
                        p.grad.mul_(inverse)
        self._found[optimizer] = found
        self._stage[optimizer] = OptState.UNSCALED

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """Call ``optimizer.step()``, unless a gradient is infinite or NaN."""
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs:
            raise RuntimeError("Closure use is not currently supported if GradScaler is enabled.")
        stage = self._stage.get(optimizer, OptState.READY)
        if stage == OptState.STEPPED:
            raise RuntimeError("step() has already been called since the last update().")
        if stage == OptState.READY:
            self.unscale_(optimizer)
        self._stage[optimizer] = OptState.STEPPED
        return None if bool(self._found[optimizer]) else optimizer.step(*args, **kwargs)

    def update(self, new_scale: float | Tensor | None = None) -> None:
        """Set the scale for the next step: ``new_scale``, or the result of the detected infinities."""
        if not self._enabled:
            return
        with no_grad():
            if new_scale is not None:
                self._scale.copy_(new_scale if isinstance(new_scale, Tensor) else T.tensor(float(new_scale)))
            else:
                if not self._found:
                    raise AssertionError("No inf checks were recorded prior to update.")
                self._adapt()
        self._found, self._stage = {}, {}

    def _adapt(self) -> None:
        bad: Any = T.tensor(False)
        for found in self._found.values():
            bad = bad | found
        good = self._good_steps + 1
        grown = good == self._growth_interval
        better = T.where(grown, self._scale * self._growth_factor, self._scale)
        self._scale.copy_(T.where(bad, self._scale * self._backoff_factor, better))
        self._good_steps.copy_(T.where(bad | grown, 0.0, good))

    def is_enabled(self) -> bool:
        return self._enabled

    def get_scale(self) -> float:
        return float(self._scale) if self._enabled else 1.0

    def get_growth_factor(self) -> float:
        return self._growth_factor

    def get_backoff_factor(self) -> float:
        return self._backoff_factor

    def get_growth_interval(self) -> int:
        return self._growth_interval

    def state_dict(self) -> dict[str, Any]:
        if not self._enabled:
            return {}
        return {
            "scale": self.get_scale(), "growth_factor": self._growth_factor, "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval, "_growth_tracker": int(self._good_steps),
        }  # fmt: skip

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from ``state_dict``; RuntimeError when it is empty."""
        if not self._enabled:
            return
        if not state_dict:
            raise RuntimeError(
                "The source state dict is empty, possibly because it was saved from a disabled instance of GradScaler."
            )
        self._growth_factor, self._backoff_factor = state_dict["growth_factor"], state_dict["backoff_factor"]
        self._growth_interval = state_dict["growth_interval"]
        with no_grad():
            self._scale.fill_(state_dict["scale"])
            self._good_steps.fill_(state_dict["_growth_tracker"])
