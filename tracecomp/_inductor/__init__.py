"""PyTorch's own code generator, of which only the settings exist, so that programs may set them."""

from tracecomp._inductor import config as config
