"""New tensors: filled, counted, drawn at random."""
