"""The names of ``torch.xpu`` on a machine without such devices."""

from tracecomp.eager.absent_device import names_of

globals().update(names_of("xpu"))
