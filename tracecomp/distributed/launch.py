"""The launcher under its older name: ``python -m tracecomp.distributed.launch``."""

from __future__ import annotations

import sys

from tracecomp.distributed.run import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
