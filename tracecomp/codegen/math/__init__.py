"""Math functions, spelled with LLVM's arithmetic alone."""
