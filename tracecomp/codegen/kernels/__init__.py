"""Loop programs spelled as LLVM text."""
