"""``torch.distributed.checkpoint``: checkpoints that any number of processes can write and read."""

from tracecomp.distributed.checkpoint import state_dict
from tracecomp.distributed.checkpoint.files import (
    CheckpointException,
    DefaultLoadPlanner,
    DefaultSavePlanner,
    FileSystemReader,
    FileSystemWriter,
    async_save,
    load,
    save,
)

__all__ = [
    "CheckpointException", "DefaultLoadPlanner", "DefaultSavePlanner", "FileSystemReader", "FileSystemWriter",
    "async_save", "load", "save", "state_dict",
]  # fmt: skip
