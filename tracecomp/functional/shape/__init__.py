"""Functions that move elements or view them in another shape."""
