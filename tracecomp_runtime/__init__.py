"""Runs programs that tracecomp has saved as machine code. Needs numpy, and nothing of tracecomp.

>>> import tracecomp_runtime
>>> step = tracecomp_runtime.load_program("step.tcp", digest="sha256:...")  # doctest: +SKIP
>>> loss = step(images, labels)  # doctest: +SKIP
"""

from tracecomp_runtime.container import FORMAT, Container, ProgramError
from tracecomp_runtime.program import Program, load_program

__all__ = ["FORMAT", "Container", "Program", "ProgramError", "load_program"]
