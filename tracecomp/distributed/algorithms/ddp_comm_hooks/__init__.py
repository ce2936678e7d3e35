"""Ways to combine gradients, for ``DistributedDataParallel.register_comm_hook``."""
