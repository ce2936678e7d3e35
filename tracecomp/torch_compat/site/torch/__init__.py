"""This torch is tracecomp: ``torch.x.y`` is ``tracecomp.x.y``."""

from pathlib import Path

from tracecomp.torch_compat import activate

activate(str(Path(__file__).parents[1]))
