"""Row-tiled fusion: kernels with the same rows as one loop over blocks of rows."""
