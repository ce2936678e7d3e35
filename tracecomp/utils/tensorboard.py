"""``SummaryWriter``, which writes the files that TensorBoard shows, with the real ``tensorboard`` package."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from tracecomp.eager.tensor import Tensor

__all__ = ["SummaryWriter"]


@cache
def _tensorboard() -> Any:
    """The classes of tensorboard that are needed; ImportError, with what to install, where it is not there."""
    try:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import HistogramProto, Summary, SummaryMetadata
        from tensorboard.compat.proto.tensor_pb2 import TensorProto
        from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
        from tensorboard.plugins.hparams.summary_v2 import hparams_pb
        from tensorboard.summary.writer.event_file_writer import EventFileWriter
    except ImportError as error:
        raise ImportError("SummaryWriter needs tensorboard: pip install tensorboard") from error
    return SimpleNamespace(
        Event=Event, HistogramProto=HistogramProto, Summary=Summary, SummaryMetadata=SummaryMetadata,
        TensorProto=TensorProto, TensorShapeProto=TensorShapeProto, hparams_pb=hparams_pb,
        EventFileWriter=EventFileWriter,
    )  # fmt: skip


def _array(value: object) -> Any:
    """Tensors, arrays and numbers as an array."""
    return value.detach().numpy() if isinstance(value, Tensor) else np.asarray(value)


class SummaryWriter:
    """Write the logs of a run into a folder (default: ``runs/`` and the time). Usable as a context manager."""

    def __init__(
        self, log_dir: str | None = None, comment: str = "", purge_step: int | None = None, max_queue: int = 10,
        flush_secs: int = 120, filename_suffix: str = "",
    ) -> None:  # fmt: skip
        self._t = _tensorboard()
        self.log_dir = str(log_dir) if log_dir else f"runs/{time.strftime('%b%d_%H-%M-%S')}{comment}"
        Path(self.log_dir).mkdir(parents=True, exist_ok=True)
        self.file_writer = self._t.EventFileWriter(self.log_dir, max_queue, flush_secs, filename_suffix)

    def get_logdir(self) -> str:
        return self.log_dir

    def _add(self, summary: object, step: int | None, walltime: float | None) -> None:
        event = self._t.Event(summary=summary, wall_time=time.time() if walltime is None else walltime)
        if step is not None:
            event.step = int(step)
        self.file_writer.add_event(event)

    def add_scalar(
        self, tag: str, scalar_value: object, global_step: int | None = None, walltime: float | None = None,
        new_style: bool = False, double_precision: bool = False,
    ) -> None:  # fmt: skip
        """A number at a step."""
        values = _array(scalar_value)
        assert values.size == 1, "scalar should be 0D"
        value = float(values.reshape(()))
        self._add(self._t.Summary(value=[self._t.Summary.Value(tag=tag, simple_value=value)]), global_step, walltime)

    def add_scalars(
        self, main_tag: str, tag_scalar_dict: Mapping[str, object], global_step: int | None = None,
        walltime: float | None = None,
    ) -> None:  # fmt: skip
        """Several numbers at a step, each in a separate run below this one."""
        for tag, value in tag_scalar_dict.items():
            with SummaryWriter(f"{self.log_dir}/{main_tag.replace('/', '_')}_{tag}") as writer:
                writer.add_scalar(main_tag, value, global_step, walltime)

    def add_histogram(
        self, tag: str, values: object, global_step: int | None = None, bins: Any = "auto",
        walltime: float | None = None,
        max_bins: int | None = None,
    ) -> None:  # fmt: skip
        """How values are distributed."""
        flat = _array(values).astype(np.float64).reshape(-1)
        edges = 30 if bins in ("tensorflow", "auto", "fd") else bins
        counts, limits = np.histogram(flat, bins=edges)
        proto = self._t.HistogramProto(
            min=flat.min(), max=flat.max(), num=flat.size, sum=flat.sum(), sum_squares=flat @ flat,
            bucket_limit=limits[1:].tolist(), bucket=counts.tolist(),
        )  # fmt: skip
        self._add(self._t.Summary(value=[self._t.Summary.Value(tag=tag, histo=proto)]), global_step, walltime)

    def add_image(
        self, tag: str, img_tensor: object, global_step: int | None = None, walltime: float | None = None,
        dataformats: str = "CHW",
    ) -> None:  # fmt: skip
        """A picture; floats from 0 to 1 or bytes. Needs pillow."""
        from io import BytesIO

        from PIL import Image

        array = _array(img_tensor)
        order = [dataformats.index(axis) for axis in "HWC" if axis in dataformats]
        array = array.transpose(order)
        array = array if array.dtype == np.uint8 else (array * 255).clip(0, 255).astype(np.uint8)
        array = array[..., 0] if array.ndim == 3 and array.shape[-1] == 1 else array
        file = BytesIO()
        Image.fromarray(array).save(file, format="PNG")
        size = {"height": array.shape[0], "width": array.shape[1], "colorspace": 1 if array.ndim == 2 else 3}
        image = self._t.Summary.Image(encoded_image_string=file.getvalue(), **size)
        self._add(self._t.Summary(value=[self._t.Summary.Value(tag=tag, image=image)]), global_step, walltime)

    def add_text(
        self, tag: str, text_string: str, global_step: int | None = None, walltime: float | None = None
    ) -> None:
        """Words, which TensorBoard shows as Markdown."""
        metadata = self._t.SummaryMetadata(plugin_data=self._t.SummaryMetadata.PluginData(plugin_name="text"))
        shape = self._t.TensorShapeProto(dim=[self._t.TensorShapeProto.Dim(size=1)])
        content = self._t.TensorProto(dtype="DT_STRING", string_val=[text_string.encode()], tensor_shape=shape)
        value = self._t.Summary.Value(tag=f"{tag}/text_summary", metadata=metadata, tensor=content)
        self._add(self._t.Summary(value=[value]), global_step, walltime)

    def add_hparams(
        self,
        hparam_dict: Mapping[str, object],
        metric_dict: Mapping[str, object],
        run_name: str | None = None,
        **options: Any,
    ) -> None:
        """The settings of a run and their results."""
        with SummaryWriter(f"{self.log_dir}/{run_name or time.time()}") as writer:
            plain = {k: v if isinstance(v, str | bool | int | float) else str(v) for k, v in hparam_dict.items()}
            writer._add(self._t.hparams_pb(plain), None, None)
            for name, value in metric_dict.items():
                writer.add_scalar(name, value)

    def add_graph(self, model: object, input_to_model: object = None, verbose: bool = False, **options: Any) -> None:
        """NotImplementedError: TensorBoard's page of graphs shows PyTorch's own format."""
        raise NotImplementedError("add_graph(): print(tracecomp.trace(model, *inputs)) shows the graph of a model")

    def flush(self) -> None:
        self.file_writer.flush()

    def close(self) -> None:
        self.file_writer.close()

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
