"""The files of TensorBoard's projector."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tensorboard.plugins.projector.projector_config_pb2 import EmbeddingInfo

from tracecomp.eager.tensor import Tensor
from tracecomp.utils.tensorboard._convert_np import Array, make_np
from tracecomp.utils.tensorboard._utils import make_grid


def make_tsv(metadata: Sequence[object], save_path: str, metadata_header: Sequence[str] | None = None) -> None:
    """Write a line for each point; with a header, its columns."""
    lines = [str(x) for x in metadata]
    if metadata_header:
        rows: list[Any] = [metadata_header, *metadata]
        if len(metadata_header) != len(rows[1]):
            raise AssertionError("len of header must be equal to the number of columns in metadata")
        lines = ["\t".join(str(x) for x in row) for row in rows]
    Path(save_path, "metadata.tsv").write_text("\n".join(lines) + "\n")


def make_sprite(label_img: Tensor | Array, save_path: str) -> None:
    """Write the pictures of all points as one square picture."""
    from PIL import Image

    grid = make_grid(make_np(label_img), ncols=math.ceil(label_img.shape[0] ** 0.5)).transpose(1, 2, 0)
    square = np.zeros((grid.shape[1], grid.shape[1], 3))  # the projector computes rows from the width
    square[: grid.shape[0]] = grid
    file = io.BytesIO()
    Image.fromarray(np.uint8((square * 255).clip(0, 255))).save(file, format="PNG")
    Path(save_path, "sprite.png").write_bytes(file.getvalue())


def get_embedding_info(
    metadata: object, label_img: Tensor | Array | None, subdir: str, global_step: int, tag: str
) -> Any:
    """The entry of the projector's configuration for one embedding."""
    info = EmbeddingInfo()
    info.tensor_name = f"{tag}:{str(global_step).zfill(5)}"
    info.tensor_path = f"{subdir}/tensors.tsv"
    if metadata is not None:
        info.metadata_path = f"{subdir}/metadata.tsv"
    if label_img is not None:
        info.sprite.image_path = f"{subdir}/sprite.png"
        info.sprite.single_image_dim.extend([label_img.shape[3], label_img.shape[2]])
    return info


def write_pbtxt(save_path: str, contents: str) -> None:
    """Write the projector's configuration."""
    Path(save_path, "projector_config.pbtxt").write_text(contents)


def make_mat(matlist: Array, save_path: str) -> None:
    """Write the coordinates of the points."""
    rows = ("\t".join(str(x.item()) for x in row) for row in matlist)
    Path(save_path, "tensors.tsv").write_text("".join(f"{row}\n" for row in rows))
