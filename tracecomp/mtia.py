"""The names of ``torch.mtia`` on a machine without such devices."""

from tracecomp.eager.absent_device import names_of

globals().update(names_of("mtia"))
