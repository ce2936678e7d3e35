"""Other libraries that find tracecomp's tensors by themselves."""
