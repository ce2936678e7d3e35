"""Math functions, emitted with LLVM's arithmetic alone."""
