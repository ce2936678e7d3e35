"""Pictures of figures, batches and videos, as arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracecomp.utils.tensorboard._convert_np import Array

__all__ = ["convert_to_HWC", "figure_to_image", "make_grid"]


def _rendered(figure: Any, close: bool) -> Any:
    import matplotlib.backends.backend_agg as agg
    import matplotlib.pyplot as plt

    canvas: Any = agg.FigureCanvasAgg(figure)
    canvas.draw()
    width, height = figure.canvas.get_width_height()
    pixels = np.frombuffer(canvas.buffer_rgba(), dtype=np.uint8).reshape(height, width, 4)
    if close:
        plt.close(figure)
    return np.moveaxis(pixels[:, :, :3], 2, 0)


def figure_to_image(figures: Any, close: bool = True) -> Any:
    """Draw a figure of matplotlib, or a list of them.

    Args:
        figures: one figure, or a list.
        close: whether pyplot forgets the figures.

    Returns:
        Bytes of shape (3, height, width), after an axis for the figures of a list.
    """
    if isinstance(figures, list):
        return np.stack([_rendered(figure, close) for figure in figures])
    return _rendered(figures, close)


def _prepare_video(V: Array) -> Any:
    """Arrange a batch of videos (batch, time, channel, height, width) in a grid: (time, height, width, channel)."""
    batch, time, channels, height, width = V.shape
    if V.dtype == np.uint8:
        V = V.astype(np.float32) / 255.0
    count = batch if batch and batch & (batch - 1) == 0 else 2 ** batch.bit_length()
    if count != batch:
        V = np.concatenate((V, np.zeros((count - batch, time, channels, height, width))), axis=0)
    rows = 2 ** ((batch.bit_length() - 1) // 2)
    columns = count // rows
    V = V.reshape(rows, columns, time, channels, height, width).transpose(2, 0, 4, 1, 5, 3)
    return V.reshape(time, rows * height, columns * width, channels)


def make_grid(I: Array, ncols: int = 8) -> Any:  # noqa: E741
    """Arrange images (count, 1 or 3 channels, height, width) in rows of ``ncols``: (3, height, width)."""
    if not isinstance(I, np.ndarray):
        raise AssertionError("plugin error, should pass numpy array here")
    if I.ndim == 4 and I.shape[1] == 1:
        I = np.concatenate([I, I, I], 1)  # noqa: E741
    if I.ndim != 4 or I.shape[1] != 3:
        raise AssertionError("Input should be a 4D numpy array with 3 channels")
    count, _, height, width = I.shape
    columns = min(count, ncols)
    canvas = np.zeros((3, height * -(-count // columns), width * columns), dtype=I.dtype)
    for i, image in enumerate(I):
        y, x = divmod(i, columns)
        canvas[:, y * height : (y + 1) * height, x * width : (x + 1) * width] = image
    return canvas


def convert_to_HWC(tensor: Array, input_format: str) -> Any:
    """Return an image whose axes are named by ``input_format``, such as "NCHW", as (height, width, 3 or 4)."""
    if len(set(input_format)) != len(input_format):
        raise AssertionError(
            f"You can not use the same dimension shorthand twice.             input_format: {input_format}"
        )
    if len(tensor.shape) != len(input_format):
        raise AssertionError(
            "size of input tensor and input format are different.         "
            f"tensor shape: {tensor.shape}, input_format: {input_format}"
        )
    axes = input_format.upper()
    if len(axes) == 4:
        return make_grid(tensor.transpose([axes.find(c) for c in "NCHW"])).transpose(1, 2, 0)
    if len(axes) == 3:
        image = tensor.transpose([axes.find(c) for c in "HWC"])
        return np.concatenate([image] * 3, 2) if image.shape[2] == 1 else image
    if len(axes) == 2:
        return np.stack([tensor.transpose([axes.find(c) for c in "HW"])] * 3, 2)
    return None
