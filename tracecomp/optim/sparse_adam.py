"""Adam for sparse gradients: only the rows in a gradient, and their moments, are updated."""

from __future__ import annotations

from tracecomp.eager.modes import no_grad, unrecorded
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.optim.optimizer import Optimizer, Options, ParamsT, Scalar, State, check_betas, non_negative
from tracecomp.optim.options import Group, number, pair


class SparseAdam(Optimizer):
    """Lazy Adam: moments of rows without a gradient do not change (like PyTorch's ``SparseAdam``).

    Every gradient has to be sparse, like those of ``nn.Embedding(..., sparse=True)``; RuntimeError for dense ones.
    """

    takes_sparse = True

    def __init__(
        self, params: ParamsT, lr: Scalar = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        maximize: bool = False,
    ) -> None:  # fmt: skip
        non_negative(learning_rate=lr, epsilon=eps)
        check_betas(betas)
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "maximize": maximize})
        given = [p for group in self.param_groups for p in group["params"]]
        for word, places in (
            ("Sparse params at indices {}: SparseAdam requires dense parameter tensors",
             [i for i, p in enumerate(given) if p.is_sparse]),
            ("Complex params at indices {}: SparseAdam does not support complex parameters",
             [i for i, p in enumerate(given) if p.is_complex()]),
        ):  # fmt: skip
            if places:
                raise ValueError(word.format(places))

    def _group(self, group: Group) -> Options:
        return number(group, "lr"), pair(group, "betas"), number(group, "eps")

    def _update(self, param: Tensor, grad: Tensor, state: State, options: Options) -> None:
        if not grad.is_sparse:
            raise RuntimeError("SparseAdam does not support dense gradients, please consider Adam instead")
        lr, (beta1, beta2), eps = options
        if not state:
            with unrecorded():
                state.update(step=0, exp_avg=T.zeros_like(param), exp_avg_sq=T.zeros_like(param))
        state["step"] += 1
        with no_grad():
            grad = grad.coalesce()
            rows, values = tuple(grad.indices()), grad.values()
            mean = state["exp_avg"][rows] * beta1 + values * (1 - beta1)
            square = state["exp_avg_sq"][rows] * beta2 + values * values * (1 - beta2)
            state["exp_avg"][rows], state["exp_avg_sq"][rows] = mean, square
            count = state["step"]
            size = lr * (1 - beta2**count) ** 0.5 / (1 - beta1**count)
            param[rows] = param[rows] - size * mean / (square.sqrt() + eps)
