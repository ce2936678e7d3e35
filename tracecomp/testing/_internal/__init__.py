"""What PyTorch keeps for its own tests, as far as libraries take it."""
