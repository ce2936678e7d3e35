"""Gradients of convolutions as separate functions, for backward passes written by hand."""

from __future__ import annotations

from collections.abc import Sequence

from tracecomp.autograd import grad
from tracecomp.eager.modes import enable_grad, grad_enabled
from tracecomp.eager.tensor import Tensor
from tracecomp.functional.dims import Sizes
from tracecomp.nn.functional.conv import convolution


def _gradient(
    n: int, input: Tensor | tuple[int, ...], weight: Tensor | tuple[int, ...], grad_output: Tensor, stride: Sizes,
    padding: Sizes, dilation: Sizes, groups: int,
) -> Tensor:  # fmt: skip
    """The gradient in the operand of which only the size is given: it depends on nothing else."""
    history = grad_enabled()
    if not isinstance(input, Tensor):
        assert isinstance(weight, Tensor)
        of = input = weight.new_zeros(input).requires_grad_()
    else:
        assert not isinstance(weight, Tensor)
        of = weight = input.new_zeros(weight).requires_grad_()
    with enable_grad():
        out = convolution(n, input, weight, None, stride, padding, dilation, groups)
        found: Tensor = grad(out, of, grad_output, create_graph=history)[0]
    return found


def conv1d_input(
    input_size: Sequence[int], weight: Tensor, grad_output: Tensor, stride: Sizes = 1, padding: Sizes = 0,
    dilation: Sizes = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """The gradient of ``conv1d`` in its input, of shape ``input_size``, from that of its result."""
    return _gradient(1, tuple(input_size), weight, grad_output, stride, padding, dilation, groups)


def conv1d_weight(
    input: Tensor, weight_size: Sequence[int], grad_output: Tensor, stride: Sizes = 1, padding: Sizes = 0,
    dilation: Sizes = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """The gradient of ``conv1d`` in its weight, of shape ``weight_size``, from that of its result."""
    return _gradient(1, input, tuple(weight_size), grad_output, stride, padding, dilation, groups)


def conv2d_input(
    input_size: Sequence[int], weight: Tensor, grad_output: Tensor, stride: Sizes = 1, padding: Sizes = 0,
    dilation: Sizes = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """The gradient of ``conv2d`` in its input, of shape ``input_size``, from that of its result."""
    return _gradient(2, tuple(input_size), weight, grad_output, stride, padding, dilation, groups)


def conv2d_weight(
    input: Tensor, weight_size: Sequence[int], grad_output: Tensor, stride: Sizes = 1, padding: Sizes = 0,
    dilation: Sizes = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """The gradient of ``conv2d`` in its weight, of shape ``weight_size``, from that of its result."""
    return _gradient(2, input, tuple(weight_size), grad_output, stride, padding, dilation, groups)


def conv3d_input(
    input_size: Sequence[int], weight: Tensor, grad_output: Tensor, stride: Sizes = 1, padding: Sizes = 0,
    dilation: Sizes = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """The gradient of ``conv3d`` in its input, of shape ``input_size``, from that of its result."""
    return _gradient(3, tuple(input_size), weight, grad_output, stride, padding, dilation, groups)


def conv3d_weight(
    input: Tensor, weight_size: Sequence[int], grad_output: Tensor, stride: Sizes = 1, padding: Sizes = 0,
    dilation: Sizes = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """The gradient of ``conv3d`` in its weight, of shape ``weight_size``, from that of its result."""
    return _gradient(3, input, tuple(weight_size), grad_output, stride, padding, dilation, groups)
