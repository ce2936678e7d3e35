"""From groups of nodes to a program: kernels, where results live, the arena."""
