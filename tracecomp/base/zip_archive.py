"""Zip archives whose writing can fail or be interrupted."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO


@contextmanager
def zip_archive(file: BinaryIO, compression: int = zipfile.ZIP_STORED) -> Iterator[zipfile.ZipFile]:
    """A zip archive to write; an error in the block is raised as it is, and ends the writing."""
    archive = zipfile.ZipFile(file, "w", compression)
    try:
        yield archive
        archive.close()
    except BaseException:
        archive.fp = io.BytesIO()  # takes the rest, which closing the archive and its open parts writes
        raise
