"""``SummaryWriter``, which writes the files that TensorBoard shows. Needs the package ``tensorboard``."""

from tracecomp.utils.tensorboard.writer import FileWriter, SummaryWriter

__all__ = ["FileWriter", "SummaryWriter"]
