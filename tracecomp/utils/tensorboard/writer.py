"""Writers of TensorBoard's event files."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Self

from tensorboard.compat.proto.event_pb2 import Event, SessionLog, TaggedRunMetadata
from tensorboard.plugins.projector.projector_config_pb2 import ProjectorConfig
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from tracecomp.eager.tensor import Tensor
from tracecomp.utils.tensorboard import summary
from tracecomp.utils.tensorboard._convert_np import Array, Bins, Layout, Message, make_np
from tracecomp.utils.tensorboard._embedding import get_embedding_info, make_mat, make_sprite, make_tsv, write_pbtxt
from tracecomp.utils.tensorboard._hparams import Domains, Settings
from tracecomp.utils.tensorboard._onnx_graph import load_onnx_graph
from tracecomp.utils.tensorboard._pytorch_graph import graph
from tracecomp.utils.tensorboard._utils import figure_to_image

__all__ = ["FileWriter", "SummaryWriter"]
Step = int | None
Time = float | None
"""Seconds since 1970; None: now."""


class FileWriter:
    """Writes records into one event file."""

    def __init__(self, log_dir: str, max_queue: int = 10, flush_secs: int = 120, filename_suffix: str = "") -> None:
        self.event_writer = EventFileWriter(str(log_dir), max_queue, flush_secs, filename_suffix)

    def get_logdir(self) -> str:
        return str(self.event_writer.get_logdir())

    def add_event(self, event: Message, step: Step = None, walltime: Time = None) -> None:
        """Write an ``Event``, of a step and a time."""
        event.wall_time = time.time() if walltime is None else walltime
        if step is not None:
            event.step = int(step)
        self.event_writer.add_event(event)

    def add_summary(self, summary: object, global_step: Step = None, walltime: Time = None) -> None:
        """Write a ``Summary``."""
        self.add_event(Event(summary=summary), global_step, walltime)

    def add_graph(self, graph_profile: tuple[Message, Message], walltime: Time = None) -> None:
        """Write a graph and the record of its run."""
        nodes, steps = graph_profile
        self.add_event(Event(graph_def=nodes.SerializeToString()), None, walltime)
        tagged = TaggedRunMetadata(tag="step1", run_metadata=steps.SerializeToString())
        self.add_event(Event(tagged_run_metadata=tagged), None, walltime)

    def add_onnx_graph(self, graph: Message, walltime: Time = None) -> None:
        """Write a graph."""
        self.add_event(Event(graph_def=graph.SerializeToString()), None, walltime)

    def flush(self) -> None:
        self.event_writer.flush()

    def close(self) -> None:
        self.event_writer.close()

    def reopen(self) -> None:
        self.event_writer.reopen()


class SummaryWriter:
    """Writes what a run logs into a folder. Usable as a context manager.

    Args:
        log_dir: the folder; None: ``runs/`` and the time, the host and ``comment``.
        comment: see ``log_dir``.
        purge_step: TensorBoard hides earlier records of this step and of later steps.
        max_queue: how many records wait to be written.
        flush_secs: after how many seconds they are written.
        filename_suffix: the end of the names of the files.
    """

    def __init__(
        self, log_dir: str | Path | None = None, comment: str = "", purge_step: int | None = None, max_queue: int = 10,
        flush_secs: int = 120, filename_suffix: str = "",
    ) -> None:  # fmt: skip
        if not log_dir:
            log_dir = f"runs/{datetime.now().strftime('%b%d_%H-%M-%S')}_{socket.gethostname()}{comment}"
        self.log_dir, self.purge_step = log_dir, purge_step
        self.max_queue, self.flush_secs, self.filename_suffix = max_queue, flush_secs, filename_suffix
        self.file_writer: FileWriter | None = None
        self.all_writers: dict[str, FileWriter] | None = None
        self._get_file_writer()
        positive = [1e-12]
        while positive[-1] * 1.1 < 1e20:
            positive.append(positive[-1] * 1.1)
        self.default_bins = [*(-x for x in reversed(positive)), 0, *positive]

    def _get_file_writer(self) -> FileWriter:
        """The writer of the folder itself, opened again after ``close``."""
        if self.all_writers is None or self.file_writer is None:
            self.file_writer = self._open(self.log_dir)
            self.all_writers = {self.file_writer.get_logdir(): self.file_writer}
            if self.purge_step is not None:
                self.file_writer.add_event(Event(step=self.purge_step, file_version="brain.Event:2"))
                restart = SessionLog(status=SessionLog.START)
                self.file_writer.add_event(Event(step=self.purge_step, session_log=restart))
                self.purge_step = None
        return self.file_writer

    def _open(self, folder: str | Path) -> FileWriter:
        return FileWriter(str(folder), self.max_queue, self.flush_secs, self.filename_suffix)

    def get_logdir(self) -> Any:
        return self.log_dir

    def add_hparams(
        self, hparam_dict: Settings, metric_dict: Settings,
        hparam_domain_discrete: Domains | None = None, run_name: str | None = None,
        global_step: Step = None,
    ) -> None:  # fmt: skip
        """Write the settings of a run and its metrics to a separate folder."""
        if type(hparam_dict) is not dict or type(metric_dict) is not dict:
            raise TypeError("hparam_dict and metric_dict should be dictionary.")
        records = summary.hparams(hparam_dict, metric_dict, hparam_domain_discrete)
        folder = f"{self._get_file_writer().get_logdir()}/{run_name or time.time()}"
        with SummaryWriter(folder) as inner:
            for record in records:
                inner._get_file_writer().add_summary(record, global_step)
            for name, value in metric_dict.items():
                inner.add_scalar(name, value, global_step)

    def add_scalar(
        self, tag: str, scalar_value: object, global_step: Step = None, walltime: Time = None,
        new_style: bool = False, double_precision: bool = False,
    ) -> None:  # fmt: skip
        """A number."""
        record = summary.scalar(tag, scalar_value, new_style=new_style, double_precision=double_precision)
        self._get_file_writer().add_summary(record, global_step, walltime)

    def add_scalars(
        self, main_tag: str, tag_scalar_dict: Mapping[str, object], global_step: Step = None, walltime: Time = None
    ) -> None:
        """Write several numbers, each to a separate run below this one."""
        now = time.time() if walltime is None else walltime
        folder = self._get_file_writer().get_logdir()
        assert self.all_writers is not None
        for tag, value in tag_scalar_dict.items():
            run = f"{folder}/{main_tag.replace('/', '_')}_{tag}"
            if run not in self.all_writers:
                self.all_writers[run] = self._open(run)
            self.all_writers[run].add_summary(summary.scalar(main_tag, value), global_step, now)

    def add_tensor(self, tag: str, tensor: Tensor, global_step: Step = None, walltime: Time = None) -> None:
        """A whole tensor."""
        self._get_file_writer().add_summary(summary.tensor_proto(tag, tensor), global_step, walltime)

    def add_histogram(
        self, tag: str, values: object, global_step: Step = None, bins: Bins = "tensorflow", walltime: Time = None,
        max_bins: int | None = None,
    ) -> None:  # fmt: skip
        """How values are distributed.

        Args:
            tag: the name.
            values: a tensor or an array.
            global_step: the step.
            bins: their limits, or how numpy's ``histogram`` chooses them; "tensorflow": each a tenth wider than the
                one before.
            walltime: the time.
            max_bins: more are joined.
        """
        bins = self.default_bins if isinstance(bins, str) and bins == "tensorflow" else bins
        record = summary.histogram(tag, values, bins, max_bins=max_bins)
        self._get_file_writer().add_summary(record, global_step, walltime)

    def add_histogram_raw(
        self, tag: str, min: float, max: float, num: int, sum: float, sum_squares: float,
        bucket_limits: Sequence[float], bucket_counts: Sequence[float], global_step: Step = None,
        walltime: Time = None,
    ) -> None:  # fmt: skip
        """A histogram that the program has computed."""
        if len(bucket_limits) != len(bucket_counts):
            raise ValueError("len(bucket_limits) != len(bucket_counts), see the document.")
        record = summary.histogram_raw(tag, min, max, num, sum, sum_squares, bucket_limits, bucket_counts)
        self._get_file_writer().add_summary(record, global_step, walltime)

    def add_image(
        self, tag: str, img_tensor: object, global_step: Step = None, walltime: Time = None, dataformats: str = "CHW"
    ) -> None:
        """A picture: floats from 0 to 1, or bytes."""
        record = summary.image(tag, img_tensor, dataformats=dataformats)
        self._get_file_writer().add_summary(record, global_step, walltime)

    def add_images(
        self, tag: str, img_tensor: object, global_step: Step = None, walltime: Time = None, dataformats: str = "NCHW"
    ) -> None:
        """A grid of pictures."""
        self.add_image(tag, img_tensor, global_step, walltime, dataformats)

    def add_image_with_boxes(
        self, tag: str, img_tensor: object, box_tensor: Tensor | Array, global_step: Step = None, walltime: Time = None,
        rescale: float = 1, dataformats: str = "CHW", labels: str | Sequence[str] | None = None,
    ) -> None:  # fmt: skip
        """A picture with boxes (left, top, right, bottom) drawn on it."""
        texts = [labels] if isinstance(labels, str) else labels
        texts = texts if texts is not None and len(texts) == box_tensor.shape[0] else None
        record = summary.image_boxes(tag, img_tensor, box_tensor, rescale, dataformats, texts)
        self._get_file_writer().add_summary(record, global_step, walltime)

    def add_figure(
        self, tag: str, figure: object, global_step: Step = None, close: bool = True, walltime: Time = None
    ) -> None:
        """A figure of matplotlib, or a list of figures."""
        axes = "NCHW" if isinstance(figure, list) else "CHW"
        self.add_image(tag, figure_to_image(figure, close), global_step, walltime, axes)

    def add_video(
        self, tag: str, vid_tensor: object, global_step: Step = None, fps: float = 4, walltime: Time = None
    ) -> None:
        """Videos of shape (batch, time, channel, height, width)."""
        self._get_file_writer().add_summary(summary.video(tag, vid_tensor, fps), global_step, walltime)

    def add_audio(
        self, tag: str, snd_tensor: object, global_step: Step = None, sample_rate: int = 44100, walltime: Time = None
    ) -> None:
        """Sound: numbers from -1 to 1."""
        record = summary.audio(tag, snd_tensor, sample_rate=sample_rate)
        self._get_file_writer().add_summary(record, global_step, walltime)

    def add_text(self, tag: str, text_string: str, global_step: Step = None, walltime: Time = None) -> None:
        """A text, which TensorBoard shows as Markdown."""
        self._get_file_writer().add_summary(summary.text(tag, text_string), global_step, walltime)

    def add_onnx_graph(self, prototxt: str) -> None:
        """The graph of an ONNX file."""
        self._get_file_writer().add_onnx_graph(load_onnx_graph(prototxt))

    def add_graph(
        self, model: Any, input_to_model: object = None, verbose: bool = False, use_strict_trace: bool = True
    ) -> None:
        """The graph of a model, which runs once with ``input_to_model``."""
        self._get_file_writer().add_graph(graph(model, input_to_model, verbose, use_strict_trace))

    @staticmethod
    def _encode(rawstr: str) -> str:
        """The name of a folder: slashes and percent signs as hexadecimal numbers."""
        return "".join(f"%{ord(c):02x}" if c in "%/\\" else c for c in rawstr)

    def add_embedding(
        self, mat: Tensor | Array, metadata: Sequence[object] | None = None,
        label_img: Tensor | Array | None = None, global_step: Step = None,
        tag: str = "default", metadata_header: Sequence[str] | None = None,
    ) -> None:  # fmt: skip
        """Points for the projector.

        Args:
            mat: their coordinates, of shape (points, dimensions).
            metadata: their labels.
            label_img: their pictures, of shape (points, channels, height, width).
            global_step: the step.
            tag: the name.
            metadata_header: the names of the columns of ``metadata``.
        """
        points = make_np(mat)
        step = 0 if global_step is None else global_step
        folder = self._get_file_writer().get_logdir()
        below = f"{str(step).zfill(5)}/{self._encode(tag)}"
        path = Path(folder, below)
        if path.is_dir():
            print("warning: Embedding dir exists, did you set global_step for add_embedding()?")
        elif path.exists():
            raise NotADirectoryError(f"Path: `{path}` exists, but is a file. Cannot proceed.")
        path.mkdir(parents=True, exist_ok=True)
        if metadata is not None:
            if points.shape[0] != len(metadata):
                raise AssertionError("#labels should equal with #data points")
            make_tsv(metadata, str(path), metadata_header)
        if label_img is not None:
            if points.shape[0] != label_img.shape[0]:
                raise AssertionError("#images should equal with #data points")
            make_sprite(label_img, str(path))
        if points.ndim != 2:
            raise AssertionError("mat should be 2D, where mat.size(0) is the number of data points")
        make_mat(points, str(path))
        config = self.__dict__.setdefault("_projector_config", ProjectorConfig())
        config.embeddings.extend([get_embedding_info(metadata, label_img, below, step, tag)])
        write_pbtxt(folder, str(config))

    def add_pr_curve(
        self, tag: str, labels: object, predictions: object, global_step: Step = None, num_thresholds: int = 127,
        weights: Array | None = None, walltime: Time = None,
    ) -> None:  # fmt: skip
        """The curve of precision and recall of ``predictions`` from 0 to 1."""
        record = summary.pr_curve(tag, make_np(labels), make_np(predictions), num_thresholds, weights)
        self._get_file_writer().add_summary(record, global_step, walltime)

    def add_pr_curve_raw(
        self, tag: str, true_positive_counts: Array, false_positive_counts: Array, true_negative_counts: Array,
        false_negative_counts: Array, precision: Array, recall: Array, global_step: Step = None,
        num_thresholds: int = 127, weights: Array | None = None, walltime: Time = None,
    ) -> None:  # fmt: skip
        """A curve of precision and recall that the program has computed."""
        counts = true_positive_counts, false_positive_counts, true_negative_counts, false_negative_counts
        record = summary.pr_curve_raw(tag, *counts, precision, recall, num_thresholds)
        self._get_file_writer().add_summary(record, global_step, walltime)

    def add_custom_scalars_multilinechart(
        self, tags: Sequence[str], category: str = "default", title: str = "untitled"
    ) -> None:
        """A chart of several numbers."""
        self.add_custom_scalars({category: {title: ["Multiline", tags]}})

    def add_custom_scalars_marginchart(
        self, tags: Sequence[str], category: str = "default", title: str = "untitled"
    ) -> None:
        """A chart of a number, its lower and its upper limit."""
        if len(tags) != 3:
            raise AssertionError(f"Expected 3 tags, got {len(tags)}.")
        self.add_custom_scalars({category: {title: ["Margin", tags]}})

    def add_custom_scalars(self, layout: Layout) -> None:
        """Charts: category -> title -> ("Multiline" or "Margin", tags)."""
        self._get_file_writer().add_summary(summary.custom_scalars(layout))

    def add_mesh(
        self, tag: str, vertices: object, colors: object = None, faces: object = None, config_dict: object = None,
        global_step: Step = None, walltime: Time = None,
    ) -> None:  # fmt: skip
        """Points in space, of shape (batch, points, 3)."""
        record = summary.mesh(tag, vertices, colors, faces, config_dict)
        self._get_file_writer().add_summary(record, global_step, walltime)

    def flush(self) -> None:
        for writer in (self.all_writers or {}).values():
            writer.flush()

    def close(self) -> None:
        for writer in (self.all_writers or {}).values():
            writer.flush()
            writer.close()
        self.file_writer = self.all_writers = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
