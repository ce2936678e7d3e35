"""Every layer with arguments and inputs, as data: what the comparison with PyTorch enumerates.

A case is (class name, arguments, keyword arguments, input specifications). An input is a shape of floats, or a pair of
a kind and a shape. Kinds are "int", "prob", "sign", "positive" and "bool"; "int" has the upper bound as a third entry.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Case = tuple[str, tuple[Any, ...], dict[str, Any], tuple[Any, ...]]

ELEMENTWISE = (
    "ReLU", "ReLU6", "SiLU", "Mish", "SELU", "Hardsigmoid", "Hardswish", "Hardtanh", "Sigmoid", "Tanh", "LogSigmoid",
    "Softsign", "Tanhshrink", "ELU", "CELU", "GELU", "Hardshrink", "Softshrink", "LeakyReLU", "Softplus", "Identity",
    "PReLU", "Flatten",
)  # fmt: skip

LAYERS: list[Case] = [
    *[(name, (), {}, ((2, 3, 4),)) for name in ELEMENTWISE],
    ("GELU", ("tanh",), {}, ((3, 5),)), ("PReLU", (3,), {}, ((2, 3, 4),)), ("Softplus", (2.0, 1.0), {}, ((4, 5),)),
    ("Threshold", (0.1, 20.0), {}, ((4, 5),)), ("Hardtanh", (-0.5, 0.7), {}, ((4, 5),)), ("GLU", (1,), {}, ((3, 4),)),
    ("Softmax", (1,), {}, ((3, 4),)), ("LogSoftmax", (-1,), {}, ((3, 4),)), ("Softmin", (0,), {}, ((3, 4),)),
    ("Softmax2d", (), {}, ((2, 3, 2, 2),)), ("CELU", (2.0,), {}, ((4, 5),)),
    ("Linear", (4, 3), {}, ((2, 5, 4),)), ("Linear", (4, 3), {"bias": False}, ((4,),)),
    ("Bilinear", (4, 3, 2), {}, ((5, 4), (5, 3))),
    ("Conv1d", (3, 4, 3), {"padding": 1, "stride": 2}, ((2, 3, 7),)), ("Conv1d", (4, 4, 2), {"groups": 2}, ((4, 5),)),
    ("Conv2d", (3, 4, 3), {"padding": 1}, ((2, 3, 5, 6),)),
    ("Conv2d", (2, 4, (2, 3)), {"stride": (2, 1), "dilation": (1, 2), "groups": 2}, ((2, 2, 6, 7),)),
    ("Conv2d", (2, 3, 4), {"padding": "same"}, ((1, 2, 6, 5),)),
    ("Conv2d", (2, 3, 3), {"padding": "valid"}, ((2, 6, 5),)),
    ("Conv2d", (2, 3, 3), {"padding": 2, "padding_mode": "reflect"}, ((1, 2, 6, 5),)),
    ("Conv2d", (2, 3, 3), {"padding": 1, "padding_mode": "circular", "bias": False}, ((1, 2, 6, 5),)),
    ("Conv2d", (2, 3, 3), {"padding": "same", "padding_mode": "replicate"}, ((1, 2, 6, 5),)),
    ("Conv3d", (2, 3, 2), {"stride": 2, "padding": 1}, ((1, 2, 4, 5, 3),)),
    ("ConvTranspose1d", (3, 2, 3), {"stride": 2, "output_padding": 1}, ((2, 3, 5),)),
    ("ConvTranspose2d", (4, 2, 3), {"stride": 2, "padding": 1, "output_padding": 1}, ((2, 4, 3, 4),)),
    ("ConvTranspose2d", (4, 6, (2, 3)), {"groups": 2, "dilation": 2, "padding": (0, 1)}, ((4, 3, 4),)),
    ("ConvTranspose2d", (2, 2, 2), {"stride": 1, "dilation": 3, "output_padding": 2}, ((1, 2, 3, 4),)),
    ("ConvTranspose3d", (2, 3, 2), {"stride": 2}, ((1, 2, 2, 3, 2),)),
    ("MaxPool1d", (3,), {"stride": 2, "padding": 1}, ((2, 3, 8),)),
    ("MaxPool1d", (2,), {"return_indices": True}, ((3, 8),)), ("MaxPool2d", (2,), {}, ((2, 3, 6, 7),)),
    ("MaxPool2d", (3,), {"stride": 2, "padding": 1, "ceil_mode": True}, ((2, 3, 6, 8),)),
    ("MaxPool2d", ((2, 3),), {"dilation": (2, 1), "return_indices": True}, ((2, 6, 8),)),
    ("MaxPool3d", (2,), {"return_indices": True}, ((1, 2, 4, 5, 4),)),
    ("AvgPool1d", (3,), {"stride": 2, "padding": 1}, ((2, 3, 8),)), ("AvgPool2d", (2,), {}, ((2, 3, 6, 7),)),
    ("AvgPool2d", (3,), {"stride": 2, "padding": 1, "ceil_mode": True}, ((2, 3, 6, 8),)),
    ("AvgPool2d", (3,), {"stride": 2, "padding": 1, "count_include_pad": False, "ceil_mode": True}, ((3, 6, 8),)),
    ("AvgPool2d", ((2, 3),), {"divisor_override": 5}, ((2, 3, 6, 8),)),
    ("AvgPool3d", (2,), {"padding": 1, "count_include_pad": False}, ((1, 2, 4, 5, 4),)),
    ("LPPool1d", (2, 3), {}, (("positive", (2, 3, 8)),)),
    ("LPPool2d", (1.5, 2), {"stride": 1}, (("positive", (2, 4, 5)),)),
    ("LPPool3d", (2, 2), {}, (("positive", (1, 2, 4, 4, 4)),)),
    ("AdaptiveAvgPool1d", (3,), {}, ((2, 3, 8),)), ("AdaptiveAvgPool2d", (2,), {}, ((2, 3, 6, 4),)),
    ("AdaptiveAvgPool2d", ((3, None),), {}, ((2, 3, 7, 4),)), ("AdaptiveAvgPool2d", ((5, 7),), {}, ((3, 3, 4),)),
    ("AdaptiveAvgPool3d", (2,), {}, ((1, 2, 3, 4, 5),)),
    ("AdaptiveMaxPool1d", (3,), {"return_indices": True}, ((2, 3, 8),)),
    ("AdaptiveMaxPool2d", (2,), {}, ((2, 3, 6, 4),)),
    ("AdaptiveMaxPool2d", ((3, 2),), {"return_indices": True}, ((3, 7, 5),)),
    ("AdaptiveMaxPool3d", (2,), {}, ((1, 2, 3, 4, 5),)),
    ("BatchNorm1d", (3,), {}, ((5, 3),)), ("BatchNorm1d", (3,), {"momentum": None}, ((5, 3, 4),)),
    ("BatchNorm2d", (3,), {"affine": False}, ((2, 3, 4, 5),)), ("BatchNorm2d", (3,), {}, ((2, 3, 4, 5),)),
    ("BatchNorm2d", (3,), {"track_running_stats": False}, ((2, 3, 4, 5),)),
    ("BatchNorm3d", (3,), {}, ((2, 3, 2, 2, 2),)),
    ("LayerNorm", ((3, 4),), {}, ((2, 3, 4),)), ("LayerNorm", (4,), {"bias": False}, ((2, 3, 4),)),
    ("LayerNorm", (4,), {"elementwise_affine": False}, ((2, 3, 4),)), ("RMSNorm", (4,), {}, ((2, 3, 4),)),
    ("GroupNorm", (2, 4), {}, ((3, 4, 5),)), ("InstanceNorm1d", (3,), {"affine": True}, ((2, 3, 4),)),
    ("InstanceNorm2d", (3,), {"affine": True, "track_running_stats": True}, ((2, 3, 4, 2),)),
    ("InstanceNorm3d", (3,), {}, ((3, 2, 4, 2),)),
    ("LocalResponseNorm", (3,), {"alpha": 0.5, "k": 2.0}, ((2, 5, 3, 3),)),
    ("Embedding", (6, 3), {}, (("int", (2, 4), 6),)), ("Embedding", (6, 3), {"padding_idx": -1}, (("int", (2, 4), 6),)),
    ("Embedding", (6, 3), {"max_norm": 1.0}, (("int", (2, 4), 6),)),
    ("Embedding", (6, 3), {"scale_grad_by_freq": True}, (("int", (3, 4), 6),)),
    ("EmbeddingBag", (6, 3), {}, (("int", (2, 4), 6),)),
    ("EmbeddingBag", (6, 3), {"mode": "max"}, (("int", (2, 4), 6),)),
    ("EmbeddingBag", (6, 3), {"mode": "sum", "padding_idx": 2}, (("int", (4, 4), 6),)),
    ("AdaptiveLogSoftmaxWithLoss", (8, 12, [3, 7]), {"div_value": 2.0}, ((40, 8), ("int", (40,), 12))),
    ("Fold", ((4, 5), (2, 3)), {"padding": 1, "stride": 2}, ((2, 12, 9),)), ("Fold", ((4, 4), 2), {}, ((4, 9),)),
    ("Unfold", ((2, 3),), {"padding": (1, 0), "dilation": (1, 2)}, ((2, 3, 5, 6),)),
    ("PixelShuffle", (2,), {}, ((1, 8, 2, 3),)), ("PixelUnshuffle", (2,), {}, ((2, 4, 6),)),
    ("ChannelShuffle", (2,), {}, ((1, 4, 2, 3),)), ("Unflatten", (1, (2, 3)), {}, ((4, 6, 2),)),
    ("Upsample", (), {"scale_factor": 2}, ((1, 2, 3, 4),)),
    ("Upsample", (), {"size": 5, "mode": "linear"}, ((1, 2, 3),)),
    ("Upsample", (), {"scale_factor": 1.7, "mode": "bilinear"}, ((1, 2, 3, 4),)),
    ("Upsample", (), {"size": (5, 7), "mode": "bilinear", "align_corners": True}, ((1, 2, 3, 4),)),
    ("Upsample", (), {"scale_factor": 2, "mode": "bicubic"}, ((1, 2, 3, 4),)),
    ("Upsample", (), {"size": (5, 4, 3), "mode": "trilinear"}, ((1, 2, 3, 2, 4),)),
    ("UpsamplingBilinear2d", (), {"scale_factor": 2}, ((1, 2, 3, 4),)),
    ("UpsamplingNearest2d", (5,), {}, ((1, 2, 3, 4),)),
    ("ReflectionPad1d", (2,), {}, ((2, 3, 4),)), ("ReflectionPad2d", ((1, 2, 0, 1),), {}, ((2, 3, 4),)),
    ("ReflectionPad3d", (1,), {}, ((2, 3, 4, 2),)), ("ReplicationPad2d", ((1, 2, 3, 0),), {}, ((1, 2, 3, 4),)),
    ("CircularPad1d", ((1, 2),), {}, ((1, 2, 3),)), ("CircularPad2d", (1,), {}, ((1, 2, 3, 4),)),
    ("ZeroPad2d", ((1, -1, 2, 0),), {}, ((1, 2, 3, 4),)), ("ConstantPad1d", (2, 3.5), {}, ((2, 3, 4),)),
    ("ConstantPad3d", (1, -1.0), {}, ((1, 2, 2, 2, 2),)),
    ("CosineSimilarity", (1,), {}, ((3, 4), (3, 4))), ("PairwiseDistance", (3.0,), {"keepdim": True}, ((3, 4), (3, 4))),
    ("RNN", (3, 4), {"num_layers": 2}, ((5, 2, 3),)), ("RNN", (3, 4), {"nonlinearity": "relu"}, ((5, 3),)),
    ("LSTM", (3, 4), {"num_layers": 2, "bidirectional": True}, ((5, 2, 3),)),
    ("LSTM", (3, 4), {"proj_size": 2, "batch_first": True, "bias": False}, ((2, 5, 3),)),
    ("GRU", (3, 4), {"bidirectional": True}, ((5, 2, 3),)), ("GRU", (3, 4), {"batch_first": True}, ((2, 5, 3),)),
    ("RNNCell", (3, 4), {}, ((2, 3), (2, 4))), ("GRUCell", (3, 4), {}, ((2, 3),)), ("LSTMCell", (3, 4), {}, ((2, 3),)),
    ("MultiheadAttention", (4, 2), {}, ((3, 2, 4), (5, 2, 4), (5, 2, 4))),
    ("MultiheadAttention", (4, 2), {"batch_first": True, "kdim": 3, "vdim": 5}, ((2, 3, 4), (2, 6, 3), (2, 6, 5))),
    ("MultiheadAttention", (4, 2), {"add_bias_kv": True, "add_zero_attn": True}, ((3, 4), (5, 4), (5, 4))),
    ("TransformerEncoderLayer", (4, 2, 8, 0.0), {}, ((3, 2, 4),)),
    ("TransformerEncoderLayer", (4, 2, 8, 0.0, "gelu"), {"norm_first": True, "batch_first": True}, ((2, 3, 4),)),
    ("TransformerDecoderLayer", (4, 2, 8, 0.0), {}, ((3, 2, 4), (5, 2, 4))),
    ("Transformer", (4, 2, 2, 1, 8, 0.0), {}, ((3, 2, 4), (5, 2, 4))),
]  # fmt: skip

LOSSES: list[Case] = [
    *[(name, (), {"reduction": r}, ((3, 4), (3, 4))) for name in ("L1Loss", "MSELoss", "SmoothL1Loss", "HuberLoss")
      for r in ("mean", "sum", "none")],
    ("SmoothL1Loss", (), {"beta": 0.3}, ((3, 4), (3, 4))), ("HuberLoss", (), {"delta": 0.3}, ((3, 4), (3, 4))),
    ("NLLLoss", (), {}, ((5, 4), ("int", (5,), 4))), ("NLLLoss", (), {"ignore_index": 1}, ((5, 4, 3),
    ("int", (5, 3), 4))),
    ("NLLLoss", (), {"reduction": "none"}, ((4,), ("int", (), 4))),
    *[("CrossEntropyLoss", (), {"reduction": r, "label_smoothing": s, "ignore_index": 2}, ((5, 4), ("int", (5,), 4)))
      for r in ("mean", "sum", "none") for s in (0.0, 0.2)],
    ("CrossEntropyLoss", (), {}, ((2, 4, 3), ("int", (2, 3), 4))),
    ("CrossEntropyLoss", (), {"label_smoothing": 0.1}, ((5, 4), ("prob", (5, 4)))),
    ("BCELoss", (), {}, (("prob", (3, 4)), ("prob", (3, 4)))), ("BCEWithLogitsLoss", (), {}, ((3, 4),
    ("prob", (3, 4)))),
    ("KLDivLoss", (), {"reduction": "batchmean"}, ((3, 4), ("prob", (3, 4)))),
    ("KLDivLoss", (), {"reduction": "sum", "log_target": True}, ((3, 4), (3, 4))),
    ("PoissonNLLLoss", (), {"full": True}, ((3, 4), ("int", (3, 4), 5))),
    ("PoissonNLLLoss", (), {"log_input": False}, (("positive", (3, 4)), ("positive", (3, 4)))),
    ("GaussianNLLLoss", (), {"full": True}, ((3, 4), (3, 4), ("positive", (3, 4)))),
    ("HingeEmbeddingLoss", (), {}, ((3, 4), ("sign", (3, 4)))), ("SoftMarginLoss", (), {}, ((3, 4), ("sign", (3, 4)))),
    ("MarginRankingLoss", (0.2,), {}, ((4,), (4,), ("sign", (4,)))),
    ("CosineEmbeddingLoss", (0.1,), {}, ((4, 3), (4, 3), ("sign", (4,)))),
    ("MultiMarginLoss", (), {"p": 2, "margin": 0.7}, ((5, 4), ("int", (5,), 4))),
    ("MultiLabelMarginLoss", (), {}, ((3, 4), ("labels", (3, 4)))),
    ("MultiLabelSoftMarginLoss", (), {}, ((3, 4), ("bool", (3, 4)))),
    ("TripletMarginLoss", (), {"swap": True}, ((4, 3), (4, 3), (4, 3))),
    ("TripletMarginWithDistanceLoss", (), {}, ((4, 3), (4, 3), (4, 3))),
]  # fmt: skip


def make_input(spec: Any, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    if not spec or isinstance(spec[0], int):
        return rng.normal(size=spec).astype("float32")
    kind, shape = spec[:2]
    if kind == "int":
        return rng.integers(0, spec[2], size=shape)
    if kind == "labels":
        return np.array([[2, 0, -1, 1], [3, -1, 0, 0], [0, 1, 2, 3]])
    uniform = rng.uniform(0.05, 0.95, size=shape).astype("float32")
    made = {"prob": uniform, "positive": uniform + 0.2, "sign": np.sign(uniform - 0.5), "bool": np.round(uniform)}
    return made[kind].astype("float32")


def identify(case: Case) -> str:
    name, args, options, _ = case
    return "-".join([name, *map(str, args), *(f"{k}={v}" for k, v in options.items())]).replace(" ", "")
