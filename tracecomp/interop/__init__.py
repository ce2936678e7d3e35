"""Integrations with other libraries that detect tracecomp's tensors."""
