"""Products, factorizations, solvers, norms and distances."""
