"""What things cost on the machine at hand; asked by every pass that chooses."""
