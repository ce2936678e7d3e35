"""Models: inference at batch 1 and more, and training steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import Any, Literal

from benchmarks.cases import nets
from benchmarks.workload import Workload, inputs, integers, normal


@dataclass(frozen=True)
class Model:
    """A model, its sizes and its inputs."""

    label: str
    net: str
    input: Callable[[int], Any]
    classes: int
    targets: tuple[int, ...] = ()
    size: dict[str, Any] = field(default_factory=dict)
    convolutional: bool = False

    def workload(self, batch: int, optimizer: Literal["", "sgd", "adamw"]) -> Workload:
        """A training step, or inference when there is no optimizer."""
        target = () if not optimizer else (integers(self.classes, batch, *self.targets),)
        return Workload(
            "training" if optimizer else "inference",
            f"{self.label}, batch {batch}" + (f", {optimizer}" if optimizer else ""),
            inputs(self.input(batch), *target),
            partial(getattr(nets, self.net), **self.size), partial(_jax, self.net, self.size),
            mode="training" if optimizer else "inference", optimizer=optimizer, export=not optimizer,
            channels_last=self.convolutional, tolerance=2e-3,
        )  # fmt: skip


def _jax(net: str, size: dict[str, Any], _: Any) -> Any:
    """jax is imported by its engine alone."""
    return getattr(import_module("benchmarks.jax_nets"), net)(**size)


_TEXT = {"vocabulary": 65, "width": 128, "heads": 4, "layers": 4, "context": 64}
_LONGER = {"vocabulary": 512, "width": 256, "heads": 8, "layers": 2, "context": 256}

MLP = Model("MLP 784-512-512-10", "mlp", lambda n: normal(n, 784), 10, size={"widths": (784, 512, 512, 10)})
SMALL_MLP = Model("MLP 16-32-32-4", "mlp", lambda n: normal(n, 16), 4, size={"widths": (16, 32, 32, 4)})
LENET = Model("LeNet 28x28", "lenet", lambda n: normal(n, 1, 28, 28), 10, convolutional=True)
RESNET = Model(
    "ResNet 32-64 32x32", "resnet", lambda n: normal(n, 3, 32, 32), 10, size={"widths": (32, 64)}, convolutional=True
)
SEPARABLE = Model(
    "depthwise net 32-128 64x64", "separable", lambda n: normal(n, 3, 64, 64), 10,
    size={"widths": (32, 64, 64, 128, 128)}, convolutional=True,
)  # fmt: skip
GPT = Model("GPT 4x128, 64 tokens", "gpt", lambda n: integers(65, n, 64), 65, (64,), _TEXT)
LONG_GPT = Model("GPT 2x256, 256 tokens", "gpt", lambda n: integers(512, n, 256), 512, (256,), _LONGER)
LSTM = Model(
    "LSTM 2x128, 32 tokens", "lstm", lambda n: integers(65, n, 32), 65, (32,),
    {"vocabulary": 65, "width": 128, "layers": 2},
)  # fmt: skip

BATCHES = {MLP.label: 64, SMALL_MLP.label: 8, LENET.label: 64, RESNET.label: 16, SEPARABLE.label: 8, GPT.label: 8,
           LONG_GPT.label: 4, LSTM.label: 16}  # fmt: skip
MODELS = (MLP, SMALL_MLP, LENET, RESNET, SEPARABLE, GPT, LONG_GPT, LSTM)

WORKLOADS = [
    *(m.workload(batch, "") for m in MODELS for batch in (1, BATCHES[m.label])),
    *(m.workload(BATCHES[m.label], optimizer) for m in MODELS for optimizer in ("sgd", "adamw")),
]

STARTS = [GPT.workload(8, "adamw").id, RESNET.workload(16, "sgd").id, MLP.workload(64, "sgd").id]
"""Whose first call, warm start and memory are measured."""
LOADED = GPT.workload(8, "adamw").id
"""The workload that runs next to a busy process."""
