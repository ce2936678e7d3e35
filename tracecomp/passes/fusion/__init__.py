"""Which nodes share a kernel."""
