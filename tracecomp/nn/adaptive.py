"""Adaptive softmax: rare classes share clusters with smaller projections (Grave et al. 2017)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tracecomp.eager.device import Device
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.ir.types import DType
from tracecomp.nn import functional as F
from tracecomp.nn.containers import ModuleList, Sequential
from tracecomp.nn.linear import Linear
from tracecomp.nn.module import Module


class ASMoutput(NamedTuple):
    """Log-probability of every target, and the mean negative one."""

    output: Tensor
    loss: Tensor


class AdaptiveLogSoftmaxWithLoss(Module):
    """Classes up to ``cutoffs[0]`` have separate logits, later ones belong to clusters.

    ValueError unless the cut-offs are unique, increasing integers in [1, n_classes - 1].
    """

    def __init__(
        self, in_features: int, n_classes: int, cutoffs: Sequence[int], div_value: float = 4.0,
        head_bias: bool = False, device: Device = None, dtype: DType | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        edges = list(cutoffs)
        if not edges:
            raise ValueError("cutoffs should be a sequence of length larger than 0")
        increasing = edges == sorted(set(edges)) and edges[0] > 0 and edges[-1] <= n_classes - 1
        if not increasing or any(int(c) != c for c in edges):
            raise ValueError(
                "cutoffs should be a sequence of unique, positive integers sorted in an increasing order, where each "
                "value is between 1 and n_classes-1"
            )
        self.in_features = in_features
        self.n_classes = n_classes
        self.cutoffs = [*edges, n_classes]
        self.div_value = div_value
        self.head_bias = head_bias
        self.shortlist_size = self.cutoffs[0]
        self.n_clusters = len(self.cutoffs) - 1
        self.head_size = self.shortlist_size + self.n_clusters
        self.head = Linear(in_features, self.head_size, head_bias, device, dtype)
        self.tail = ModuleList()
        for i in range(self.n_clusters):
            hidden = int(in_features // div_value ** (i + 1))
            size = self.cutoffs[i + 1] - self.cutoffs[i]
            self.tail.append(
                Sequential(
                    Linear(in_features, hidden, False, device, dtype), Linear(hidden, size, False, device, dtype)
                )
            )

    def reset_parameters(self) -> None:
        """Initialise the weights of every part."""
        self.head.reset_parameters()
        for first, second in self.tail:
            first.reset_parameters()
            second.reset_parameters()

    def log_prob(self, input: Tensor) -> Tensor:
        """Log-probabilities of all classes: (N, in_features) -> (N, n_classes)."""
        head = F.log_softmax(self.head(input), 1)
        parts = [head[:, : self.shortlist_size]]
        for i, tail in enumerate(self.tail):
            inner = F.log_softmax(tail(input), 1)
            parts.append(inner + head[:, self.shortlist_size + i].unsqueeze(1))
        return T.cat(parts, 1)

    def predict(self, input: Tensor) -> Tensor:
        """The likeliest class of every row."""
        return self.log_prob(input).argmax(1)

    def forward(self, input_: Tensor, target_: Tensor) -> ASMoutput:
        """Log-probabilities of the targets: (N, in_features), (N) -> (N) and the loss. RuntimeError on bad shapes."""
        single = target_.ndim == 0
        if target_.ndim > 1:
            raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
        if input_.ndim != target_.ndim + 1:
            raise RuntimeError(
                f"{target_.ndim}D target tensor expects {target_.ndim + 1}D input tensors, but found inputs with "
                f"size {tuple(input_.shape)}"
            )
        x, y = (input_.unsqueeze(0), target_.unsqueeze(0)) if single else (input_, target_)
        if x.shape[0] != y.shape[0]:
            raise RuntimeError("Input and target should have the same size in the batch dimension.")
        output = self.log_prob(x).gather(1, y.unsqueeze(1)).squeeze(1)
        return ASMoutput(output.squeeze(0) if single else output, (-output).mean())
