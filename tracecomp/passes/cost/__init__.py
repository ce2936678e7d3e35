"""Cost models, for every pass that makes a choice."""
