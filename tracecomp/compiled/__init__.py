"""``compile`` and compiled functions: choice of a recording, replay, the native call.

The package is loaded on first use: programs that use modules need not compile anything.
"""

from typing import TYPE_CHECKING

from tracecomp.base.lazy_names import later

if TYPE_CHECKING:
    from tracecomp.compiled.function import Compiled, compile, trace

__all__ = ["Compiled", "compile", "trace"]
__getattr__ = later("tracecomp.compiled", dict.fromkeys(__all__, "function"))
