"""Functions of functions under the names of torch.func."""

from tracecomp.func.derivatives import grad, grad_and_value, hessian, jacfwd, jacrev, jvp, linearize, vjp
from tracecomp.func.modules import (
    functional_call,
    functionalize,
    replace_all_batch_norm_modules_,
    stack_module_state,
)
from tracecomp.func.vmap import vmap

__all__ = [
    "functional_call", "functionalize", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "linearize",
    "replace_all_batch_norm_modules_", "stack_module_state", "vjp", "vmap",
]  # fmt: skip
