"""``compile`` and what a compiled function is: choosing a recording, replaying it, the native call."""

from tracecomp.compiled.function import Compiled, compile, trace

__all__ = ["Compiled", "compile", "trace"]
