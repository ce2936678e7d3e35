"""LLVM text: the emitter, modules, targets, and machine code."""
