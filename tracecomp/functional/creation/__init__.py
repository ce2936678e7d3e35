"""New tensors: filled, sequences, legacy constructors."""
