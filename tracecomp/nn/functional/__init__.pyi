# Written by `python -m tests.surface`; do not edit.

"""The layers as functions, as in torch.nn.functional."""

from collections.abc import Callable
from collections.abc import Sequence
from tracecomp.eager.tensor import Tensor
from tracecomp.functional.dims import Sizes
from tracecomp.ir.types import DType
from tracecomp.nn.functional.adaptive import Target
from tracecomp.nn.functional.classification import LinearCrossEntropyOptions
from typing import Literal
from typing import overload

def adaptive_avg_pool1d(input: Tensor, output_size: Target) -> Tensor:
    """(N, C, L) -> (N, C, output_size)."""
def adaptive_avg_pool2d(input: Tensor, output_size: Target) -> Tensor:
    """(N, C, H, W) -> (N, C, *output_size); None keeps an axis."""
def adaptive_avg_pool3d(input: Tensor, output_size: Target) -> Tensor:
    """(N, C, D, H, W) -> (N, C, *output_size); None keeps an axis."""
@overload
def adaptive_max_pool1d(input: Tensor, output_size: Target, return_indices: Literal[False] = False) -> Tensor:
    """(N, C, L) -> (N, C, output_size)."""
@overload
def adaptive_max_pool1d(input: Tensor, output_size: Target, *, return_indices: Literal[True]) -> tuple[Tensor, Tensor]: ...
@overload
def adaptive_max_pool1d(input: Tensor, output_size: Target, return_indices: bool = False) -> Tensor | tuple[Tensor, Tensor]: ...
@overload
def adaptive_max_pool2d(input: Tensor, output_size: Target, return_indices: Literal[False] = False) -> Tensor:
    """(N, C, H, W) -> (N, C, *output_size); None keeps an axis."""
@overload
def adaptive_max_pool2d(input: Tensor, output_size: Target, *, return_indices: Literal[True]) -> tuple[Tensor, Tensor]: ...
@overload
def adaptive_max_pool2d(input: Tensor, output_size: Target, return_indices: bool = False) -> Tensor | tuple[Tensor, Tensor]: ...
@overload
def adaptive_max_pool3d(input: Tensor, output_size: Target, return_indices: Literal[False] = False) -> Tensor:
    """(N, C, D, H, W) -> (N, C, *output_size); None keeps an axis."""
@overload
def adaptive_max_pool3d(input: Tensor, output_size: Target, *, return_indices: Literal[True]) -> tuple[Tensor, Tensor]: ...
@overload
def adaptive_max_pool3d(input: Tensor, output_size: Target, return_indices: bool = False) -> Tensor | tuple[Tensor, Tensor]: ...
def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool | None = None) -> Tensor:
    """Sampling grid of affine maps: (N, 2, 3) -> (N, H, W, 2), (N, 3, 4) -> (N, D, H, W, 3)."""
def alpha_dropout(input: Tensor, p: float = ..., training: bool = False, inplace: bool = False) -> Tensor:
    """Dropout that keeps mean and variance of SELU activations (Klambauer et al. 2017)."""
def avg_pool1d(input: Tensor, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0, ceil_mode: bool = False, count_include_pad: bool = True) -> Tensor:
    """(N, C, L) -> (N, C, L')."""
def avg_pool2d(input: Tensor, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0, ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None) -> Tensor:
    """(N, C, H, W) -> (N, C, H', W')."""
def avg_pool3d(input: Tensor, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0, ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None) -> Tensor:
    """(N, C, D, H, W) -> (N, C, D', H', W')."""
def batch_norm(input: Tensor, running_mean: Tensor | None, running_var: Tensor | None, weight: Tensor | None = None, bias: Tensor | None = None, training: bool = False, momentum: float | Tensor = ..., eps: float = ...) -> Tensor:
    """Normalise each channel (axis 1) by batch statistics, which update the running ones, or by the running ones.

    Ioffe and Szegedy 2015. ValueError in training when a channel has one value only.
    """
def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``x1[i] W[o, i, j] x2[j]``: (*, in1), (*, in2), (out, in1, in2) -> (*, out)."""
def binary_cross_entropy(input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None, reduce: bool | None = None, reduction: str = 'mean') -> Tensor:
    """Cross entropy of probabilities, with logarithms of at least -100.

    ValueError when sizes differ. RuntimeError when dtypes differ or when numbers are not between 0 and 1 (checked in
    eager calls and during recording, not in compiled calls).
    """
def binary_cross_entropy_with_logits(input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None, reduce: bool | None = None, reduction: str = 'mean', pos_weight: Tensor | None = None) -> Tensor:
    """``binary_cross_entropy`` of ``sigmoid(input)`` without overflow. ValueError when sizes differ."""
def celu(input: Tensor, alpha: float = ..., inplace: bool = False) -> Tensor:
    """``max(0, x) + min(0, alpha * (exp(x / alpha) - 1))``; RuntimeError if ``alpha`` is 0."""
def celu_(input: Tensor, alpha: float = ..., inplace: bool = False) -> Tensor:
    """``max(0, x) + min(0, alpha * (exp(x / alpha) - 1))``; RuntimeError if ``alpha`` is 0."""
def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """Interleave ``groups`` groups of channels of (N, C, *)."""
def conv1d(input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Sizes = 1, padding: Sizes | str = 0, dilation: Sizes = 1, groups: int = 1) -> Tensor:
    """(N, C, L) with (O, C / groups, K) -> (N, O, L'); ``padding`` may be ``"same"`` or ``"valid"``."""
def conv2d(input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Sizes = 1, padding: Sizes | str = 0, dilation: Sizes = 1, groups: int = 1) -> Tensor:
    """(N, C, H, W) with (O, C / groups, KH, KW) -> (N, O, H', W'); ``padding`` may be ``"same"`` or ``"valid"``."""
def conv3d(input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Sizes = 1, padding: Sizes | str = 0, dilation: Sizes = 1, groups: int = 1) -> Tensor:
    """(N, C, D, H, W) with (O, C / groups, KD, KH, KW) -> (N, O, D', H', W')."""
def conv_tbc(input: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Tensor:
    """(L, N, C) with (K, C, O) -> (L', N, O): :func:`conv1d` with time first and channels last."""
def conv_transpose1d(input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Sizes = 1, padding: Sizes = 0, output_padding: Sizes = 0, groups: int = 1, dilation: Sizes = 1) -> Tensor:
    """(N, C, L) with (C, O / groups, K) -> (N, O, L')."""
def conv_transpose2d(input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Sizes = 1, padding: Sizes = 0, output_padding: Sizes = 0, groups: int = 1, dilation: Sizes = 1) -> Tensor:
    """(N, C, H, W) with (C, O / groups, KH, KW) -> (N, O, H', W')."""
def conv_transpose3d(input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Sizes = 1, padding: Sizes = 0, output_padding: Sizes = 0, groups: int = 1, dilation: Sizes = 1) -> Tensor:
    """(N, C, D, H, W) with (C, O / groups, KD, KH, KW) -> (N, O, D', H', W')."""
def cosine_embedding_loss(input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0, size_average: bool | None = None, reduce: bool | None = None, reduction: str = 'mean') -> Tensor:
    """``1 - cos`` where the target is 1, ``max(0, cos - margin)`` where it is -1."""
def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = ...) -> Tensor:
    """Cosine of the angle between vectors along ``dim``, each norm at least ``eps``."""
def cross_entropy(input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None, ignore_index: int = -100, reduce: bool | None = None, reduction: str = 'mean', label_smoothing: float = ...) -> Tensor:
    """Cross entropy of logits (N, C, *) with classes (N, *) or class probabilities (N, C, *)."""
def ctc_loss(log_probs: Tensor, targets: Tensor, input_lengths: Tensor | Sequence[int], target_lengths: Tensor | Sequence[int], blank: int = 0, reduction: str = 'mean', zero_infinity: bool = False) -> Tensor:
    """Connectionist temporal classification (Graves et al. 2006): (T, N, C) and (N, S) or concatenated targets."""
def dropout(input: Tensor, p: float = ..., training: bool = True, inplace: bool = False) -> Tensor:
    """In training, zero each element with probability ``p`` and scale the rest by ``1 / (1 - p)``."""
def dropout1d(input: Tensor, p: float = ..., training: bool = True, inplace: bool = False) -> Tensor:
    """``dropout`` of whole channels of (N, C, L) or (C, L)."""
def dropout2d(input: Tensor, p: float = ..., training: bool = True, inplace: bool = False) -> Tensor:
    """``dropout`` of whole channels of (N, C, H, W); (N, C, L) counts as batched."""
def dropout3d(input: Tensor, p: float = ..., training: bool = True, inplace: bool = False) -> Tensor:
    """``dropout`` of whole channels of (N, C, D, H, W) or (C, D, H, W)."""
def elu(input: Tensor, alpha: float = ..., inplace: bool = False) -> Tensor:
    """``x`` where positive, else ``alpha * (exp(x) - 1)``."""
def elu_(input: Tensor, alpha: float = ..., inplace: bool = False) -> Tensor:
    """``x`` where positive, else ``alpha * (exp(x) - 1)``."""
def embedding(input: Tensor, weight: Tensor, padding_idx: int | None = None, max_norm: float | None = None, norm_type: float = ..., scale_grad_by_freq: bool = False, sparse: bool = False) -> Tensor:
    """Rows of ``weight`` (number, size) at ``input`` of any shape -> (*input.shape, size).

    ``padding_idx`` names a row that gets no gradient; ``max_norm`` first shortens, in place, the rows that are read.
    IndexError for an index out of range, RuntimeError unless ``weight`` is 2-d and ``input`` holds integers.
    """
def embedding_bag(input: Tensor, weight: Tensor, offsets: Tensor | None = None, max_norm: float | None = None, norm_type: float = 2, scale_grad_by_freq: bool = False, mode: str = 'mean', sparse: bool = False, per_sample_weights: Tensor | None = None, include_last_offset: bool = False, padding_idx: int | None = None) -> Tensor:
    """Sum, mean or max of the embeddings of each bag: (bags, n) or flat indices with ``offsets`` -> (bags, size)."""
def feature_alpha_dropout(input: Tensor, p: float = ..., training: bool = False, inplace: bool = False) -> Tensor:
    """``alpha_dropout`` of whole channels."""
def fold(input: Tensor, output_size: Sizes | None, kernel_size: Sizes, dilation: Sizes = 1, padding: Sizes = 0, stride: Sizes = 1) -> Tensor:
    """Sum columns (N, C * KH * KW, L) back into images (N, C, *output_size): the adjoint of ``unfold``."""
@overload
def fractional_max_pool2d(input: Tensor, kernel_size: Sizes, output_size: Target = None, output_ratio: float | Sequence[float] | None = None, return_indices: Literal[False] = False, _random_samples: Tensor | None = None) -> Tensor:
    """(N, C, H, W) -> (N, C, *output_size) over pseudo-random regions (Graham 2014)."""
@overload
def fractional_max_pool2d(input: Tensor, kernel_size: Sizes, output_size: Target = None, output_ratio: float | Sequence[float] | None = None, *, return_indices: Literal[True], _random_samples: Tensor | None = None) -> tuple[Tensor, Tensor]: ...
@overload
def fractional_max_pool2d(input: Tensor, kernel_size: Sizes, output_size: Target = None, output_ratio: float | Sequence[float] | None = None, return_indices: bool = False, _random_samples: Tensor | None = None) -> Tensor | tuple[Tensor, Tensor]: ...
@overload
def fractional_max_pool3d(input: Tensor, kernel_size: Sizes, output_size: Target = None, output_ratio: float | Sequence[float] | None = None, return_indices: Literal[False] = False, _random_samples: Tensor | None = None) -> Tensor:
    """(N, C, D, H, W) -> (N, C, *output_size) over pseudo-random regions (Graham 2014)."""
@overload
def fractional_max_pool3d(input: Tensor, kernel_size: Sizes, output_size: Target = None, output_ratio: float | Sequence[float] | None = None, *, return_indices: Literal[True], _random_samples: Tensor | None = None) -> tuple[Tensor, Tensor]: ...
@overload
def fractional_max_pool3d(input: Tensor, kernel_size: Sizes, output_size: Target = None, output_ratio: float | Sequence[float] | None = None, return_indices: bool = False, _random_samples: Tensor | None = None) -> Tensor | tuple[Tensor, Tensor]: ...
def gaussian_nll_loss(input: Tensor, target: Tensor, var: Tensor | float, full: bool = False, eps: float = ..., reduction: str = 'mean') -> Tensor:
    """Negative log likelihood of a Gaussian target with mean ``input`` and variance ``var``, at least ``eps``."""
def gelu(input: Tensor, approximate: str = 'none', *, out: Tensor | None = None) -> Tensor:
    """``x * Phi(x)``, with erf or (``approximate="tanh"``) by the tanh formula of Hendrycks and Gimpel 2016."""
def glu(input: Tensor, dim: int = -1) -> Tensor:
    """First half times sigmoid of the second half along ``dim``; RuntimeError if it cannot be halved."""
def grid_sample(input: Tensor, grid: Tensor, mode: str = 'bilinear', padding_mode: str = 'zeros', align_corners: bool | None = None) -> Tensor:
    """Elements of (N, C, spatial) at the normalised positions ``grid`` (N, *out, n), x first: (N, C, *out)."""
def group_norm(input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = ...) -> Tensor:
    """Normalise each of ``num_groups`` groups of channels of each sample (Wu and He 2018)."""
def grouped_mm(mat_a: Tensor, mat_b: Tensor, *, offs: Tensor | None = None, bias: Tensor | None = None, out_dtype: DType | None = None) -> Tensor:
    """Products of adjacent groups of rows of ``mat_a`` (S, K) with a matrix of ``mat_b`` (G, K, N) each: (S, N).

    ``offs`` (G) has the ends of the groups as int32. Results after the last group are zeros; in PyTorch they are not
    defined. Groups may also be columns of ``mat_b``: (G, M, K), (K, S) -> (M, S), or summed: (M, S), (S, N) -> (G, M,
    N). Without ``offs`` both operands are batches of matrices. RuntimeError for other shapes, for a ``bias``, and for
    an ``out_dtype`` that is not the operands'.
    """
def gumbel_softmax(logits: Tensor, tau: float = 1, hard: bool = False, eps: float = ..., dim: int = -1) -> Tensor:
    """A sample of the Gumbel-softmax distribution (Jang et al. 2017); one-hot with a soft gradient if ``hard``."""
def hardshrink(input: Tensor, lambd: float = ..., *, out: Tensor | None = None) -> Tensor:
    """``x``, or 0 where ``|x| <= lambd``."""
def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """``min(max(x + 3, 0), 6) / 6``."""
def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """``x * min(max(x + 3, 0), 6) / 6``."""
def hardtanh(input: Tensor, min_val: float = ..., max_val: float = ..., inplace: bool = False) -> Tensor:
    """``x`` limited to ``[min_val, max_val]``; the gradient is 0 on and outside the limits."""
def hardtanh_(input: Tensor, min_val: float = ..., max_val: float = ..., inplace: bool = False) -> Tensor:
    """``x`` limited to ``[min_val, max_val]``; the gradient is 0 on and outside the limits."""
def hinge_embedding_loss(input: Tensor, target: Tensor, margin: float = ..., size_average: bool | None = None, reduce: bool | None = None, reduction: str = 'mean') -> Tensor:
    """``x`` where the target is 1, ``max(0, margin - x)`` where it is -1."""
def huber_loss(input: Tensor, target: Tensor, reduction: str = 'mean', delta: float = ..., weight: Tensor | None = None) -> Tensor:
    """``0.5 d^2`` where ``|d| < delta``, else ``delta (|d| - delta / 2)``, in the dtype of ``input``."""
def instance_norm(input: Tensor, running_mean: Tensor | None = None, running_var: Tensor | None = None, weight: Tensor | None = None, bias: Tensor | None = None, use_input_stats: bool = True, momentum: float = ..., eps: float = ...) -> Tensor:
    """Normalise each channel of each sample over the spatial axes (Ulyanov et al. 2016)."""
def interpolate(input: Tensor, size: Sizes | None = None, scale_factor: float | Sequence[float] | None = None, mode: str = 'nearest', align_corners: bool | None = None, recompute_scale_factor: bool | None = None, antialias: bool = False) -> Tensor:
    """Resize the spatial axes of (N, C, ...): nearest, nearest-exact, linear, bilinear, bicubic, trilinear, area."""
def kl_div(input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None, reduction: str = 'mean', log_target: bool = False) -> Tensor:
    """``target (log target - input)``, ``input`` in logarithms; ``batchmean`` divides the sum by the batch size."""
def l1_loss(input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None, reduction: str = 'mean', weight: Tensor | None = None) -> Tensor:
    """Absolute difference."""
def layer_norm(input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, bias: Tensor | None = None, eps: float = ...) -> Tensor:
    """Normalise over the last axes, whose sizes are ``normalized_shape`` (Ba et al. 2016). RuntimeError otherwise."""
def leaky_relu(input: Tensor, negative_slope: float = ..., inplace: bool = False) -> Tensor:
    """``x`` where positive, else ``negative_slope * x``."""
def leaky_relu_(input: Tensor, negative_slope: float = ..., inplace: bool = False) -> Tensor:
    """``x`` where positive, else ``negative_slope * x``."""
def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None, *, out: Tensor | None = None) -> Tensor:
    """``x @ weight.T + bias``: (*, in), (out, in), (out) -> (*, out). RuntimeError when sizes do not fit."""
def linear_cross_entropy(input: Tensor, linear_weight: Tensor, target: Tensor, *, linear_bias: Tensor | None = None, weight: Tensor | None = None, reduction: str = 'mean', ignore_index: int | None = None, label_smoothing: float = ..., options: LinearCrossEntropyOptions | None = None) -> Tensor:
    """Cross entropy of the logits ``linear(input, linear_weight, linear_bias)``.

    ``input`` is (I) or (N, I), ``linear_weight`` (C, *, I), ``linear_bias`` (C, *), ``target`` classes (N, *) or class
    probabilities (N, C, *). RuntimeError for other shapes, and for ``ignore_index`` with probabilities. ``options``
    have no effect here.
    """
def local_response_norm(input: Tensor, size: int, alpha: float = ..., beta: float = ..., k: float = ...) -> Tensor:
    """``x / (k + alpha * mean of x^2 over size neighbouring channels) ** beta`` (Krizhevsky et al. 2012)."""
def log_softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: DType | None = None) -> Tensor:
    """Logarithm of ``softmax``."""
def logsigmoid(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """``log(sigmoid(x))`` without overflow: ``min(x, 0) - log1p(exp(-|x|))``."""
def lp_pool1d(input: Tensor, norm_type: float, kernel_size: Sizes, stride: Sizes | None = None, ceil_mode: bool = False) -> Tensor:
    """``(sum of x ** p) ** (1 / p)`` of every window of (N, C, L)."""
def lp_pool2d(input: Tensor, norm_type: float, kernel_size: Sizes, stride: Sizes | None = None, ceil_mode: bool = False) -> Tensor:
    """``(sum of x ** p) ** (1 / p)`` of every window of (N, C, H, W)."""
def lp_pool3d(input: Tensor, norm_type: float, kernel_size: Sizes, stride: Sizes | None = None, ceil_mode: bool = False) -> Tensor:
    """``(sum of x ** p) ** (1 / p)`` of every window of (N, C, D, H, W)."""
def margin_ranking_loss(input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0, size_average: bool | None = None, reduce: bool | None = None, reduction: str = 'mean') -> Tensor:
    """``max(0, -y (x1 - x2) + margin)``."""
@overload
def max_pool1d(input: Tensor, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0, dilation: Sizes = 1, ceil_mode: bool = False, return_indices: Literal[False] = False) -> Tensor:
    """(N, C, L) -> (N, C, L')."""
@overload
def max_pool1d(input: Tensor, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0, dilation: Sizes = 1, ceil_mode: bool = False, *, return_indices: Literal[True]) -> tuple[Tensor, Tensor]: ...
@overload
def max_pool1d(input: Tensor, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0, dilation: Sizes = 1, ceil_mode: bool = False, return_indices: bool = False) -> Tensor | tuple[Tensor, Tensor]: ...
def max_pool1d_with_indices(input: Tensor, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0, dilation: Sizes = 1, ceil_mode: bool = False, return_indices: bool = True) -> tuple[Tensor, Tensor]:
    """``max_pool1d(..., return_indices=True)``."""
@overload
def max_pool2d(input: Tensor, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0, dilation: Sizes = 1, ceil_mode: bool = False, return_indices: Literal[False] = False) -> Tensor:
    """(N, C, H, W) -> (N, C, H', W')."""
@overload
def max_pool2d(input: Tensor, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0, dilation: Sizes = 1, ceil_mode: bool = False, *, return_indices: Literal[True]) -> tuple[Tensor, Tensor]: ...
@overload
def max_pool2d(input: Tensor, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0, dilation: Sizes = 1, ceil_mode: bool = False, return_indices: bool = False) -> Tensor | tuple[Tensor, Tensor]: ...
def max_pool2d_with_indices(input: Tensor, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0, dilation: Sizes = 1, ceil_mode: bool = False, return_indices: bool = True) -> tuple[Tensor, Tensor]:
    """``max_pool2d(..., return_indices=True)``."""
@overload
def max_pool3d(input: Tensor, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0, dilation: Sizes = 1, ceil_mode: bool = False, return_indices: Literal[False] = False) -> Tensor:
    """(N, C, D, H, W) -> (N, C, D', H', W')."""
@overload
def max_pool3d(input: Tensor, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0, dilation: Sizes = 1, ceil_mode: bool = False, *, return_indices: Literal[True]) -> tuple[Tensor, Tensor]: ...
@overload
def max_pool3d(input: Tensor, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0, dilation: Sizes = 1, ceil_mode: bool = False, return_indices: bool = False) -> Tensor | tuple[Tensor, Tensor]: ...
def max_pool3d_with_indices(input: Tensor, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0, dilation: Sizes = 1, ceil_mode: bool = False, return_indices: bool = True) -> tuple[Tensor, Tensor]:
    """``max_pool3d(..., return_indices=True)``."""
def max_unpool1d(input: Tensor, indices: Tensor, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0, output_size: Sequence[int] | None = None) -> Tensor:
    """Partial inverse of ``max_pool1d``."""
def max_unpool2d(input: Tensor, indices: Tensor, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0, output_size: Sequence[int] | None = None) -> Tensor:
    """Partial inverse of ``max_pool2d``."""
def max_unpool3d(input: Tensor, indices: Tensor, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0, output_size: Sequence[int] | None = None) -> Tensor:
    """Partial inverse of ``max_pool3d``."""
def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """``x * tanh(softplus(x))``."""
def mse_loss(input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None, reduction: str = 'mean', weight: Tensor | None = None) -> Tensor:
    """Squared difference."""
def multi_head_attention_forward(query: Tensor, key: Tensor, value: Tensor, embed_dim_to_check: int, num_heads: int, in_proj_weight: Tensor | None, in_proj_bias: Tensor | None, bias_k: Tensor | None, bias_v: Tensor | None, add_zero_attn: bool, dropout_p: float, out_proj_weight: Tensor, out_proj_bias: Tensor | None, training: bool = True, key_padding_mask: Tensor | None = None, need_weights: bool = True, attn_mask: Tensor | None = None, use_separate_proj_weight: bool = False, q_proj_weight: Tensor | None = None, k_proj_weight: Tensor | None = None, v_proj_weight: Tensor | None = None, static_k: Tensor | None = None, static_v: Tensor | None = None, average_attn_weights: bool = True, is_causal: bool = False) -> tuple[Tensor, Tensor | None]:
    """Multi-head attention (Vaswani et al. 2017) of (L, N, E), (S, N, E), (S, N, E), or without N."""
def multi_margin_loss(input: Tensor, target: Tensor, p: float = 1, margin: float = ..., weight: Tensor | None = None, size_average: bool | None = None, reduce: bool | None = None, reduction: str = 'mean') -> Tensor:
    """Mean over wrong classes of ``max(0, margin - x[y] + x[i]) ** p``, times the weight of class y."""
def multilabel_margin_loss(input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None, reduction: str = 'mean') -> Tensor:
    """Sum over target and other classes of ``max(0, 1 - (x[y] - x[i])) / C``; targets end at the first -1."""
def multilabel_soft_margin_loss(input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None, reduce: bool | None = None, reduction: str = 'mean') -> Tensor:
    """Mean over classes of binary cross entropy with logits."""
def nll_loss(input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None, ignore_index: int = -100, reduce: bool | None = None, reduction: str = 'mean') -> Tensor:
    """``-weight[y] x[y]`` of log-probabilities (N, C, *) and classes (N, *), the mean over the weights.

    Targets equal to ``ignore_index`` are ignored. IndexError for a class out of range.
    """
def normalize(input: Tensor, p: float = ..., dim: int | Sequence[int] | None = 1, eps: float = ..., out: Tensor | None = None) -> Tensor:
    """``x`` over its p-norm along ``dim``, the norm at least ``eps``."""
def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """Integers -> int64 vectors with a 1 at that place, on a new last axis."""
def pad(input: Tensor, pad: Sequence[int], mode: str = 'constant', value: float | None = None) -> Tensor:
    """Pad from the last axis on: ``pad = (left, right, top, bottom, ...)``.

    Modes: constant (``value``), reflect, replicate, circular. NotImplementedError for a mode or rank that PyTorch
    lacks.
    """
def pairwise_distance(x1: Tensor, x2: Tensor, p: float = ..., eps: float = ..., keepdim: bool = False) -> Tensor:
    """p-norm of ``x1 - x2 + eps`` along the last axis."""
def pdist(input: Tensor, p: float = ...) -> Tensor:
    """p-norm distances of every pair of rows (N, M) -> (N (N - 1) / 2)."""
def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """(*, C r^2, H, W) -> (*, C, H r, W r)."""
def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """(*, C, H r, W r) -> (*, C r^2, H, W)."""
def poisson_nll_loss(input: Tensor, target: Tensor, log_input: bool = True, full: bool = False, size_average: bool | None = None, eps: float = ..., reduce: bool | None = None, reduction: str = 'mean') -> Tensor:
    """Negative log likelihood of a Poisson target, ``input`` the (log) rate."""
def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """``leaky_relu`` with a learnable slope: one, or one per channel (dimension 1).

    RuntimeError unless the number of slopes is 1 or the number of channels.
    """
def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """``max(x, 0)`` elementwise."""
def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """``min(max(x, 0), 6)`` elementwise."""
def relu_(input: Tensor, inplace: bool = False) -> Tensor:
    """``max(x, 0)`` elementwise."""
def rms_norm(input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None) -> Tensor:
    """``x / sqrt(mean(x^2) + eps)`` over the last axes (Zhang and Sennrich 2019)."""
def rrelu(input: Tensor, lower: float = ..., upper: float = ..., training: bool = False, inplace: bool = False) -> Tensor:
    """``leaky_relu`` with a slope drawn from ``[lower, upper]`` per element in training, else their mean."""
def rrelu_(input: Tensor, lower: float = ..., upper: float = ..., training: bool = False, inplace: bool = False) -> Tensor:
    """``leaky_relu`` with a slope drawn from ``[lower, upper]`` per element in training, else their mean."""
def scaled_dot_product_attention(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = ..., is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False) -> Tensor:
    """``softmax(Q K^T scale + mask) V``: (*, L, E), (*, S, E), (*, S, Ev) -> (*, L, Ev).

    A boolean mask selects keys; any other mask is added to the scores. ``scale`` defaults to ``1 / sqrt(E)``.
    RuntimeError when both a mask and ``is_causal`` are given.
    """
def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """Scaled ELU (Klambauer et al. 2017)."""
def selu_(input: Tensor, inplace: bool = False) -> Tensor:
    """Scaled ELU (Klambauer et al. 2017)."""
def sigmoid(input: Tensor) -> Tensor:
    """``1 / (1 + exp(-x))`` elementwise."""
def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """``x * sigmoid(x)``."""
def smooth_l1_loss(input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None, reduction: str = 'mean', beta: float = ...) -> Tensor:
    """``0.5 d^2 / beta`` where ``|d| < beta``, else ``|d| - beta / 2``."""
def soft_margin_loss(input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None, reduction: str = 'mean') -> Tensor:
    """``log(1 + exp(-y x))``."""
def softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: DType | None = None) -> Tensor:
    """``exp(x)`` over its sum along ``dim``."""
def softmin(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: DType | None = None) -> Tensor:
    """``softmax`` of ``-x``."""
def softplus(input: Tensor, beta: float = ..., threshold: float = ..., *, out: Tensor | None = None) -> Tensor:
    """``log(1 + exp(beta * x)) / beta``; ``x`` itself where ``beta * x > threshold``."""
def softshrink(input: Tensor, lambd: float = ..., *, out: Tensor | None = None) -> Tensor:
    """``x`` moved towards 0 by ``lambd``; RuntimeError if ``lambd`` is negative."""
def softsign(input: Tensor) -> Tensor:
    """``x / (1 + |x|)``."""
def tanh(input: Tensor) -> Tensor:
    """Hyperbolic tangent elementwise."""
def tanhshrink(input: Tensor) -> Tensor:
    """``x - tanh(x)``."""
def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """``x`` where it is greater than ``threshold``, else ``value``; of integers both numbers are truncated."""
def threshold_(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """``x`` where it is greater than ``threshold``, else ``value``; of integers both numbers are truncated."""
def triplet_margin_loss(anchor: Tensor, positive: Tensor, negative: Tensor, margin: float = ..., p: float = 2, eps: float = ..., swap: bool = False, size_average: bool | None = None, reduce: bool | None = None, reduction: str = 'mean') -> Tensor:
    """``max(0, d(anchor, positive) - d(anchor, negative) + margin)``."""
def triplet_margin_with_distance_loss(anchor: Tensor, positive: Tensor, negative: Tensor, *, distance_function: Callable[[Tensor, Tensor], Tensor] | None = None, margin: float = ..., swap: bool = False, reduction: str = 'mean') -> Tensor:
    """``triplet_margin_loss`` with a custom distance."""
def unfold(input: Tensor, kernel_size: Sizes, dilation: Sizes = 1, padding: Sizes = 0, stride: Sizes = 1) -> Tensor:
    """Patches of (N, C, H, W) as columns: (N, C * KH * KW, L)."""
def upsample(input: Tensor, size: Sizes | None = None, scale_factor: float | Sequence[float] | None = None, mode: str = 'nearest', align_corners: bool | None = None) -> Tensor:
    """The older name of ``interpolate``."""
def upsample_bilinear(input: Tensor, size: Sizes | None = None, scale_factor: float | Sequence[float] | None = None) -> Tensor:
    """``interpolate(mode="bilinear", align_corners=True)``."""
def upsample_nearest(input: Tensor, size: Sizes | None = None, scale_factor: float | Sequence[float] | None = None) -> Tensor:
    """``interpolate(mode="nearest")``."""
