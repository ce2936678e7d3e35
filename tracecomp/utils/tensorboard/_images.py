"""TensorBoard's records of pictures, videos and sound. Pictures need pillow, videos moviepy."""

from __future__ import annotations

import io
import tempfile
import wave
from collections.abc import Sequence
from typing import Any

import numpy as np
from tensorboard.compat.proto.summary_pb2 import Summary

from tracecomp.utils.tensorboard._convert_np import Array, make_np
from tracecomp.utils.tensorboard._utils import _prepare_video, convert_to_HWC

__all__ = ["audio", "draw_boxes", "image", "image_boxes", "make_image", "make_video", "video"]


def _as_bytes(array: Array) -> Any:
    """Bytes from 0 to 255, of bytes or of floats from 0 to 1."""
    scale = 1 if array.dtype == np.uint8 else 255
    return (array.astype(np.float32) * scale).clip(0, 255).astype(np.uint8)


def image(tag: str, tensor: object, rescale: float = 1, dataformats: str = "NCHW") -> Any:
    """Record a picture, or a grid of them.

    Args:
        tag: the tag.
        tensor: bytes, or floats from 0 to 1.
        rescale: factor of width and height.
        dataformats: the order of the axes.
    """
    picture = make_image(_as_bytes(convert_to_HWC(make_np(tensor), dataformats)), rescale)
    return Summary(value=[Summary.Value(tag=tag, image=picture)])


def image_boxes(
    tag: str, tensor_image: object, tensor_boxes: object, rescale: float = 1, dataformats: str = "CHW",
    labels: Sequence[str] | None = None,
) -> Any:  # fmt: skip
    """Record a picture with red boxes (left, top, right, bottom) drawn on it."""
    pixels = _as_bytes(convert_to_HWC(make_np(tensor_image), dataformats))
    picture = make_image(pixels, rescale, make_np(tensor_boxes), labels)
    return Summary(value=[Summary.Value(tag=tag, image=picture)])


def _draw_label(draw: Any, left: float, bottom: float, label: str) -> None:
    from PIL import ImageFont

    font = ImageFont.load_default()
    x0, y0, x1, y1 = font.getbbox(label)
    width, height = x1 - x0, y1 - y0
    margin = np.ceil(0.05 * height)
    draw.rectangle([(left, bottom - height - 2 * margin), (left + width, bottom)], fill="Red")
    draw.text((left + margin, bottom - height - margin), label, fill="black", font=font)


def draw_boxes(disp_image: Any, boxes: Array, labels: Sequence[str] | None = None) -> Any:
    """Draw ``boxes`` (count, 4) and their labels on a picture of pillow."""
    from PIL import ImageDraw

    draw = ImageDraw.Draw(disp_image)
    for i, (left, top, right, bottom) in enumerate(boxes[:, :4]):
        draw.line([(left, top), (left, bottom), (right, bottom), (right, top), (left, top)], width=2, fill="Red")
        if labels is not None and labels[i]:
            _draw_label(draw, left, bottom, labels[i])
    return disp_image


def make_image(
    tensor: Array, rescale: float = 1, rois: Array | None = None, labels: Sequence[str] | None = None
) -> Any:
    """Encode bytes (height, width, channels) as PNG, with the boxes ``rois``."""
    from PIL import Image

    height, width, channels = tensor.shape
    picture = Image.fromarray(tensor)
    if rois is not None:
        picture = draw_boxes(picture, rois, labels)
    picture = picture.resize((int(width * rescale), int(height * rescale)), Image.Resampling.LANCZOS)
    file = io.BytesIO()
    picture.save(file, format="PNG")
    return Summary.Image(height=height, width=width, colorspace=channels, encoded_image_string=file.getvalue())


def video(tag: str, tensor: object, fps: float = 4) -> Any:
    """Record videos (batch, time, channel, height, width) as one animation."""
    return Summary(value=[Summary.Value(tag=tag, image=make_video(_as_bytes(_prepare_video(make_np(tensor))), fps))])


def make_video(tensor: Array, fps: float) -> Any:
    """Encode bytes (time, height, width, channels) as GIF; None, with a printed line, without moviepy."""
    try:
        import moviepy as mpy
    except ImportError:
        print("add_video needs package moviepy")
        return None
    _, height, width, channels = tensor.shape
    with tempfile.NamedTemporaryFile(suffix=".gif") as file:
        mpy.ImageSequenceClip(list(tensor), fps=fps).write_gif(file.name, logger=None)
        content = file.read()
    return Summary.Image(height=height, width=width, colorspace=channels, encoded_image_string=content)


def audio(tag: str, tensor: object, sample_rate: int = 44100) -> Any:
    """Record sound: one channel of numbers from -1 to 1, as 16-bit WAVE."""
    array = make_np(tensor).squeeze()
    if abs(array).max() > 1:
        print("warning: audio amplitude out of range, auto clipped.")
        array = array.clip(-1, 1)
    if array.ndim != 1:
        raise AssertionError("input tensor should be 1 dimensional.")
    samples = (array * np.iinfo(np.int16).max).astype("<i2")
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(sample_rate)
        sound.writeframes(samples.tobytes())
    record = Summary.Audio(
        sample_rate=sample_rate, num_channels=1, length_frames=len(samples), encoded_audio_string=file.getvalue(),
        content_type="audio/wav",
    )  # fmt: skip
    return Summary(value=[Summary.Value(tag=tag, audio=record)])
