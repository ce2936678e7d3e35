"""What holds where the stacks of Python can be read, and what on other Pythons (docs/capture.md, "Reads")."""

from __future__ import annotations

import pytest

from tracecomp.record.frames import stack_is_known

needs_stacks = pytest.mark.skipif(
    not stack_is_known(), reason="what single instructions read and change cannot be seen on this Python"
)
"""Tests of which recording is made and what is said: elsewhere such a program runs as Python."""
runs_as_python_elsewhere = pytest.mark.filterwarnings(
    "error" if stack_is_known() else "ignore:.* runs (in parts|eagerly) from now on:UserWarning"
)
"""Tests of what such a program computes: that is the same, after a warning."""
MOST_RECORDINGS = 2 if stack_is_known() else 4
"""Of a program that changes what it reads: elsewhere as many as are made before it runs as Python."""
