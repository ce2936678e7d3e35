"""Guards: the conditions for reusing a recording, and their discovery."""
