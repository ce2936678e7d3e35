"""``torch.fx.experimental``: graphs of the operators that run."""
