"""Loop IR to LLVM text and machine code. Spelling only: every decision was taken before."""
