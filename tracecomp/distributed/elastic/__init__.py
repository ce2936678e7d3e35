"""``torch.distributed.elastic``: the parts that programs import. The launcher is ``tracecomp.distributed.run``."""
