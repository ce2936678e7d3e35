"""Emission of loop programs as LLVM text."""
