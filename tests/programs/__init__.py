"""Scripts as users write them: each runs with and without compilation and must give the same."""
