"""``torch.distributed.elastic``: what programs import of it. The launcher is ``tracecomp.distributed.run``."""
