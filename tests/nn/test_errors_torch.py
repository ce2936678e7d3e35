"""Wrong calls of layers raise the exception type that PyTorch raises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tracecomp

torch = pytest.importorskip("torch")


def linear_cross_entropy(t: Any, input: Any, weight: Any, target: Any, **options: Any) -> Any:
    """The loss of tensors of these shapes; classes where the target has one axis."""
    labels = t.zeros(target, dtype=t.int64 if len(target) == 1 else t.float32)
    return t.nn.functional.linear_cross_entropy(t.ones(input), t.ones(weight), labels, **options)


WRONG: dict[str, Callable[[Any], Any]] = {
    "conv channels": lambda t: t.nn.Conv2d(3, 4, 3)(t.ones(1, 2, 5, 5)),
    "conv rank": lambda t: t.nn.Conv2d(3, 4, 3)(t.ones(5, 5)),
    "conv kernel": lambda t: t.nn.Conv2d(3, 4, 9)(t.ones(1, 3, 5, 5)),
    "conv dtype": lambda t: t.nn.Conv2d(3, 4, 3)(t.ones(1, 3, 5, 5, dtype=t.float64)),
    "conv groups": lambda t: t.nn.Conv2d(3, 4, 3, groups=2),
    "conv padding word": lambda t: t.nn.Conv2d(3, 4, 3, padding="some"),
    "conv padding mode": lambda t: t.nn.Conv2d(3, 4, 3, padding_mode="some"),
    "conv without channels": lambda t: t.nn.functional.conv2d(t.ones(1, 1, 3, 3), t.ones(0, 1, 2, 2)),
    "conv fewer channels than groups": lambda t: t.nn.functional.conv1d(t.ones(1, 4, 3), t.ones(2, 1, 2), groups=4),
    "conv_transpose channels": lambda t: t.nn.functional.conv_transpose1d(t.ones(1, 0, 3), t.ones(0, 2, 2)),
    "conv stride": lambda t: t.nn.functional.conv2d(t.ones(1, 1, 3, 3), t.ones(1, 1, 2, 2), stride=0),
    "same and strided": lambda t: t.nn.Conv2d(3, 4, 3, padding="same", stride=2),
    "transposed extra": lambda t: t.nn.ConvTranspose2d(1, 1, 3, output_padding=1)(t.ones(1, 1, 3, 3)),
    "transposed size": lambda t: t.nn.ConvTranspose2d(1, 1, 3, stride=2)(t.ones(1, 1, 3, 3), output_size=(20, 20)),
    "linear dtype": lambda t: t.nn.Linear(3, 2)(t.ones(2, 3, dtype=t.float64)),
    "pool padding": lambda t: t.nn.MaxPool2d(2, padding=2)(t.ones(1, 1, 4, 4)),
    "pool too small": lambda t: t.nn.AvgPool2d(5)(t.ones(1, 1, 4, 4)),
    "batch norm rank": lambda t: t.nn.BatchNorm2d(3)(t.ones(2, 3)),
    "batch norm channels": lambda t: t.nn.BatchNorm1d(3)(t.ones(2, 4)),
    "batch norm of one": lambda t: t.nn.BatchNorm1d(3)(t.ones(1, 3)),
    "conv of an empty kernel": lambda t: t.nn.functional.conv3d(t.ones(1, 1, 4, 4, 4), t.ones(1, 1, 4, 0, 4)),
    "conv_transpose of an empty kernel": lambda t: t.nn.functional.conv_transpose1d(t.ones(4, 5), t.ones(4, 8, 0)),
    "conv_transpose of nothing": lambda t: t.nn.functional.conv_transpose3d(t.ones(4, 0, 5, 5), t.ones(4, 8, 3, 3, 3)),
    "adaptive pooling of nothing": lambda t: t.nn.functional.adaptive_max_pool2d(t.ones(1, 8, 0, 3), 2),
    "adaptive mean of nothing": lambda t: t.nn.functional.adaptive_avg_pool2d(t.ones(1, 8, 0, 3), (None, None)),
    "group norm weights": lambda t: t.nn.functional.group_norm(t.ones(2, 6, 3), 2, t.ones(6), t.ones(1, 6)),
    "rms norm of integers": lambda t: t.nn.functional.rms_norm(t.ones(2, 3, dtype=t.int64), (3,)),
    "interpolate sizes": lambda t: t.nn.functional.interpolate(t.ones(3, 4, 4), (5, 5), mode="bilinear"),
    "layer norm of an int": lambda t: t.nn.functional.layer_norm(t.ones(2, 3), 3),
    "cell features": lambda t: t.nn.LSTMCell(2, 3)(t.ones(4, 3)),
    "layer norm shape": lambda t: t.nn.LayerNorm(3)(t.ones(2, 4)),
    "group norm groups": lambda t: t.nn.GroupNorm(2, 3),
    "embedding range": lambda t: t.nn.Embedding(3, 2)(t.tensor([3])),
    "embedding floats": lambda t: t.nn.Embedding(3, 2)(t.ones(2)),
    "embedding padding": lambda t: t.nn.Embedding(3, 2, padding_idx=5),
    "dropout probability": lambda t: t.nn.Dropout(1.5),
    "target range": lambda t: t.nn.functional.cross_entropy(t.ones(2, 3), t.tensor([0, 3])),
    "target batch": lambda t: t.nn.functional.cross_entropy(t.ones(2, 3), t.tensor([0, 1, 2])),
    "target floats": lambda t: t.nn.functional.nll_loss(t.ones(2, 3), t.ones(2)),
    "logits rank": lambda t: linear_cross_entropy(t, (1, 2, 3), (4, 3), (1,)),
    "logits weight rank": lambda t: linear_cross_entropy(t, (2, 3), (3,), (2,)),
    "logits features": lambda t: linear_cross_entropy(t, (2, 3), (4, 2), (2,)),
    "logits bias": lambda t: linear_cross_entropy(t, (2, 3), (4, 3), (2,), linear_bias=t.ones(3)),
    "logits batch": lambda t: linear_cross_entropy(t, (3,), (4, 2, 3), (2,)),
    "logits ignored": lambda t: linear_cross_entropy(t, (2, 3), (4, 3), (2, 4), ignore_index=0),
    "class weights": lambda t: t.nn.functional.nll_loss(t.ones(2, 3), t.tensor([0, 1]), t.ones(2)),
    "smoothing": lambda t: t.nn.functional.cross_entropy(t.ones(2, 3), t.tensor([0, 1]), label_smoothing=2.0),
    "reduction": lambda t: t.nn.functional.mse_loss(t.ones(2), t.ones(2), reduction="some"),
    "bce sizes": lambda t: t.nn.functional.binary_cross_entropy(t.ones(2), t.ones(3)),
    "logit sizes": lambda t: t.nn.functional.binary_cross_entropy_with_logits(t.ones(2), t.ones(3)),
    "attention heads": lambda t: t.nn.MultiheadAttention(5, 2),
    "attention mask": lambda t: t.nn.MultiheadAttention(4, 2)(*[t.ones(3, 2, 4)] * 3, attn_mask=t.ones(2, 2)),
    "causal and mask": lambda t: t.nn.functional.scaled_dot_product_attention(
        *[t.ones(1, 2, 4)] * 3, attn_mask=t.ones(2, 2), is_causal=True
    ),
    "rnn size": lambda t: t.nn.LSTM(3, 4)(t.ones(5, 2, 2)),
    "rnn state": lambda t: t.nn.GRU(3, 4)(t.ones(5, 2, 3), t.ones(1, 3, 4)),
    "rnn hidden size": lambda t: t.nn.LSTM(3, 0),
    "rnn word": lambda t: t.nn.RNN(3, 4, nonlinearity="some"),
    "transformer width": lambda t: t.nn.Transformer(4, 2, 1, 1, 8)(t.ones(3, 2, 5), t.ones(3, 2, 4)),
    "shuffle": lambda t: t.nn.PixelShuffle(2)(t.ones(1, 3, 2, 2)),
    "interpolate mode": lambda t: t.nn.functional.interpolate(t.ones(1, 1, 4), 3, mode="bilinear"),
    "interpolate both": lambda t: t.nn.functional.interpolate(t.ones(1, 1, 4), 3, 2.0),
    "pad reflect": lambda t: t.nn.functional.pad(t.ones(1, 1, 3), (3, 0), "reflect"),
    "pad odd": lambda t: t.nn.functional.pad(t.ones(1, 1, 3), (3, 0, 1)),
    "fold blocks": lambda t: t.nn.Fold((4, 4), 2)(t.ones(1, 4, 5)),
    "glu odd": lambda t: t.nn.GLU()(t.ones(2, 3)),
    "one hot": lambda t: t.nn.functional.one_hot(t.tensor([3]), 2),
    "flatten": lambda t: t.nn.Flatten(3)(t.ones(2, 3)),
}


@pytest.mark.parametrize("mistake", WRONG)
def test_the_type_of_the_error(mistake: str) -> None:
    with pytest.raises(Exception) as theirs:
        WRONG[mistake](torch)
    with pytest.raises(theirs.type) as ours:
        WRONG[mistake](tracecomp)
    assert len(str(ours.value)) > 10
