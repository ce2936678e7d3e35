"""PyTorch's own code generator, of which its settings are here, so that programs may set them."""

from tracecomp._inductor import config as config
