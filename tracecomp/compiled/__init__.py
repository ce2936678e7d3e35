"""``compile`` and what a compiled function is: choosing a recording, replaying it, the native call.

Loaded when it is first asked for: programs that use modules need not compile anything.
"""

from typing import TYPE_CHECKING

from tracecomp.base.lazy_names import later

if TYPE_CHECKING:
    from tracecomp.compiled.function import Compiled, compile, trace

__all__ = ["Compiled", "compile", "trace"]
__getattr__ = later("tracecomp.compiled", dict.fromkeys(__all__, "function"))
