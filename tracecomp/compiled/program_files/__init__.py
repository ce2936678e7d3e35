"""Programs in files: saved as machine code or as graphs, and loaded again."""
