"""TensorBoard's records of numbers, texts, tensors and curves."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tensorboard.compat.proto.summary_pb2 import HistogramProto, Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.plugins.custom_scalar import layout_pb2
from tensorboard.plugins.mesh import metadata as mesh_metadata
from tensorboard.plugins.mesh.plugin_data_pb2 import MeshPluginData
from tensorboard.plugins.pr_curve.plugin_data_pb2 import PrCurvePluginData
from tensorboard.plugins.text.plugin_data_pb2 import TextPluginData

from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.ir import types as dtypes
from tracecomp.utils.tensorboard._convert_np import Array, Bins, Layout, make_np
from tracecomp.utils.tensorboard._hparams import hparams
from tracecomp.utils.tensorboard._images import (
    audio,
    draw_boxes,
    image,
    image_boxes,
    make_image,
    make_video,
    video,
)
from tracecomp.utils.tensorboard._utils import _prepare_video as _prepare_video

__all__ = [
    "audio", "compute_curve", "custom_scalars", "draw_boxes", "half_to_int", "histogram", "histogram_raw", "hparams",
    "image", "image_boxes", "int_to_half", "make_histogram", "make_image", "make_video", "mesh", "pr_curve",
    "pr_curve_raw", "scalar", "tensor_proto", "text", "video",
]  # fmt: skip
_THRESHOLDS = 127
"""The most thresholds of a curve: the plugin's message keeps their number in a byte."""


def half_to_int(f: float) -> int:
    """Return the bits of a number as a float32, the form of halves in a ``TensorProto``."""
    return int(struct.unpack("i", struct.pack("f", f))[0])


def int_to_half(i: int) -> float:
    """Return the number that ``half_to_int`` encoded."""
    return float(struct.unpack("f", struct.pack("i", i))[0])


def _values(t: Tensor) -> list[Any]:
    return list(t.flatten().tolist())


def _halves(t: Tensor) -> list[int]:
    return [half_to_int(x) for x in t.flatten().tolist()]


def _parts(t: Tensor) -> list[float]:
    return list(T.view_as_real(t).flatten().tolist())


_FIELDS: dict[object, tuple[str, str, Callable[[Tensor], list[Any]]]] = {
    dtypes.float16: ("DT_HALF", "half_val", _halves),
    dtypes.bfloat16: ("DT_BFLOAT16", "half_val", _halves),
    dtypes.float32: ("DT_FLOAT", "float_val", _values),
    dtypes.float64: ("DT_DOUBLE", "double_val", _values),
    dtypes.int8: ("DT_INT8", "int_val", _values),
    dtypes.uint8: ("DT_UINT8", "uint32_val", _values),
    dtypes.int16: ("DT_INT16", "int_val", _values),
    dtypes.int32: ("DT_INT32", "int_val", _values),
    dtypes.int64: ("DT_INT64", "int64_val", _values),
    dtypes.bool_: ("DT_BOOL", "bool_val", _values),
    dtypes.complex64: ("DT_COMPLEX64", "scomplex_val", _parts),
    dtypes.complex128: ("DT_COMPLEX128", "dcomplex_val", _parts),
}


def _shape(sizes: Sequence[int]) -> Any:
    return TensorShapeProto(dim=[TensorShapeProto.Dim(size=size) for size in sizes])


def _of_plugin(name: str, content: bytes = b"") -> Any:
    return SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name=name, content=content))


def scalar(
    name: str, tensor: object, collections: object = None, new_style: bool = False, double_precision: bool = False
) -> Any:
    """Record one number. AssertionError for a tensor of several.

    Args:
        name: the tag.
        tensor: the number.
        collections: ignored.
        new_style: whether it is written as a tensor.
        double_precision: whether that tensor is float64.
    """
    array = make_np(tensor).squeeze()
    if array.ndim:
        raise AssertionError(
            "Tensor should contain one element (0 dimensions).             "
            f"Was given size: {array.size} and {array.ndim} dimensions."
        )
    number = float(array)
    if not new_style:
        return Summary(value=[Summary.Value(tag=name, simple_value=number)])
    value = TensorProto(float_val=[number], dtype="DT_FLOAT")
    if double_precision:
        value = TensorProto(double_val=[number], dtype="DT_DOUBLE")
    return Summary(value=[Summary.Value(tag=name, tensor=value, metadata=_of_plugin("scalars"))])


def tensor_proto(tag: str, tensor: Tensor) -> Any:
    """Record a whole tensor. ValueError for 2 GiB or more, and for dtypes that TensorBoard does not have."""
    if tensor.numel() * tensor.itemsize >= 1 << 31:
        raise ValueError("tensor is bigger than protocol buffer's hard limit of 2GB in size")
    if tensor.dtype not in _FIELDS:
        raise ValueError(f"{tag} has unsupported tensor dtype {tensor.dtype}")
    dtype, field, convert = _FIELDS[tensor.dtype]
    value = TensorProto(**{"dtype": dtype, "tensor_shape": _shape(tensor.shape), field: convert(tensor)})
    return Summary(value=[Summary.Value(tag=tag, metadata=_of_plugin("tensor"), tensor=value)])


def histogram_raw(
    name: str,
    min: float,
    max: float,
    num: int,
    sum: float,
    sum_squares: float,
    bucket_limits: Sequence[float],
    bucket_counts: Sequence[float],
) -> Any:
    """Record a histogram that the program has computed; ``bucket_limits`` are the upper ones."""
    proto = HistogramProto(
        min=min, max=max, num=num, sum=sum, sum_squares=sum_squares, bucket_limit=bucket_limits, bucket=bucket_counts
    )
    return Summary(value=[Summary.Value(tag=name, histo=proto)])


def histogram(name: str, values: object, bins: Bins, max_bins: int | None = None) -> Any:
    """Record how values are distributed over ``bins``, which numpy's ``histogram`` understands."""
    proto = make_histogram(make_np(values).astype(float), bins, max_bins)
    return Summary(value=[Summary.Value(tag=name, histo=proto)])


def _merged(counts: Array, limits: Array, max_bins: int) -> tuple[Any, Any]:
    """Neighbours joined, until there are about ``max_bins``."""
    step = len(counts) // max_bins
    if len(counts) % step:
        counts = np.pad(counts, (0, step - len(counts) % step))
    counts = counts.reshape(-1, step).sum(axis=-1)
    return counts, np.append(limits[:-1:step][: counts.size], limits[-1])


def make_histogram(values: Array, bins: Bins, max_bins: int | None = None) -> Any:
    """Count values in bins, without the empty bins at both ends. ValueError for no values."""
    if values.size == 0:
        raise ValueError("The input has no element.")
    values = values.reshape(-1)
    counts, limits = np.histogram(values, bins=bins)
    if max_bins is not None and len(counts) > max_bins:
        counts, limits = _merged(counts, limits, max_bins)
    filled = np.flatnonzero(counts)
    if not filled.size and counts.size > 1:
        raise ValueError("The histogram is empty, please file a bug report.")
    first, last = (int(filled[0]), int(filled[-1])) if filled.size else (1, 0)  # one bin stays although it is empty
    # One empty bin stays before the first: its limit is the lower limit of the first.
    counts = counts[first - 1 : last + 1] if first else np.concatenate([[0], counts[: last + 1]])
    limits = limits[first : last + 2]
    return HistogramProto(
        min=values.min(), max=values.max(), num=len(values), sum=values.sum(), sum_squares=values.dot(values),
        bucket_limit=limits.tolist(), bucket=counts.tolist(),
    )  # fmt: skip


def _chart(title: str, kind: str, tags: Sequence[str]) -> Any:
    if kind != "Margin":
        return layout_pb2.Chart(title=title, multiline=layout_pb2.MultilineChartContent(tag=tags))
    if len(tags) != 3:
        raise AssertionError("len(tags) != 3")
    series = layout_pb2.MarginChartContent.Series(value=tags[0], lower=tags[1], upper=tags[2])
    return layout_pb2.Chart(title=title, margin=layout_pb2.MarginChartContent(series=[series]))


def custom_scalars(layout: Layout) -> Any:
    """Record charts: category -> title -> ("Multiline" or "Margin", tags)."""
    categories = [
        layout_pb2.Category(title=name, chart=[_chart(title, kind, tags) for title, (kind, tags, *_) in charts.items()])
        for name, charts in layout.items()
    ]
    content = layout_pb2.Layout(category=categories).SerializeToString()
    value = TensorProto(dtype="DT_STRING", string_val=[content], tensor_shape=TensorShapeProto())
    metadata = _of_plugin("custom_scalars")
    return Summary(value=[Summary.Value(tag="custom_scalars__config__", tensor=value, metadata=metadata)])


def text(tag: str, text: str) -> Any:
    """Record a text, which TensorBoard shows as Markdown."""
    value = TensorProto(dtype="DT_STRING", string_val=[text.encode()], tensor_shape=_shape([1]))
    metadata = _of_plugin("text", TextPluginData(version=0).SerializeToString())
    return Summary(value=[Summary.Value(tag=f"{tag}/text_summary", metadata=metadata, tensor=value)])


def pr_curve_raw(
    tag: str, tp: Array, fp: Array, tn: Array, fn: Array, precision: Array, recall: Array,
    num_thresholds: int = _THRESHOLDS, weights: object = None,
) -> Any:  # fmt: skip
    """Record a curve of precision and recall that the program has computed, at most 127 thresholds."""
    data = np.stack((tp, fp, tn, fn, precision, recall))
    content = PrCurvePluginData(version=0, num_thresholds=min(num_thresholds, _THRESHOLDS)).SerializeToString()
    value = TensorProto(dtype="DT_FLOAT", float_val=data.reshape(-1).tolist(), tensor_shape=_shape(data.shape))
    return Summary(value=[Summary.Value(tag=tag, metadata=_of_plugin("pr_curves", content), tensor=value)])


def pr_curve(
    tag: str, labels: Array, predictions: Array, num_thresholds: int = _THRESHOLDS, weights: Array | None = None
) -> Any:
    """Record the curve of precision and recall of ``predictions`` from 0 to 1."""
    thresholds = min(num_thresholds, _THRESHOLDS)
    tp, fp, tn, fn, precision, recall = compute_curve(labels, predictions, thresholds, weights)
    return pr_curve_raw(tag, tp, fp, tn, fn, precision, recall, thresholds)


def compute_curve(labels: Array, predictions: Array, num_thresholds: int, weights: Array | None = None) -> Any:
    """Count hits and misses by threshold.

    Args:
        labels: array of 0 and 1.
        predictions: array of the same shape, from 0 to 1.
        num_thresholds: how many, evenly from 0 to 1.
        weights: array of the same shape; None: all are 1.

    Returns:
        Rows of true and false positives, true and false negatives, precision, and recall.
    """
    scale: Any = 1.0 if weights is None else weights
    buckets = np.int32(np.floor(predictions * (num_thresholds - 1)))
    truth = labels.astype(np.float64)
    span = (0, num_thresholds - 1)
    hits, _ = np.histogram(buckets, bins=num_thresholds, range=span, weights=truth * scale)
    misses, _ = np.histogram(buckets, bins=num_thresholds, range=span, weights=(1.0 - truth) * scale)
    tp, fp = np.cumsum(hits[::-1])[::-1], np.cumsum(misses[::-1])[::-1]
    tn, fn = fp[0] - fp, tp[0] - tp
    least = 1e-7  # keeps quotients finite where nothing is counted
    return np.stack((tp, fp, tn, fn, tp / np.maximum(least, tp + fp), tp / np.maximum(least, tp + fn)))


def mesh(
    tag: str, vertices: object, colors: object, faces: object, config_dict: object, display_name: str | None = None,
    description: str | None = None,
) -> Any:  # fmt: skip
    """Record points in space (batch, points, 3), with ``colors`` and ``faces`` where they are not None."""
    kinds = (MeshPluginData.VERTEX, MeshPluginData.FACE, MeshPluginData.COLOR)
    given = [(T.as_tensor(x), kind) for x, kind in zip((vertices, faces, colors), kinds, strict=True) if x is not None]
    components = mesh_metadata.get_components_bitmask([kind for _, kind in given])
    config = "{}" if config_dict is None else json.dumps(config_dict, sort_keys=True)
    values = []
    for x, kind in given:
        metadata = mesh_metadata.create_summary_metadata(
            tag, display_name, kind, components, list(x.shape), description, json_config=config
        )
        value = TensorProto(dtype="DT_FLOAT", float_val=x.reshape(-1).tolist(), tensor_shape=_shape(x.shape[:3]))
        name = mesh_metadata.get_instance_name(tag, kind)
        values.append(Summary.Value(tag=name, tensor=value, metadata=metadata))
    return Summary(value=values)
