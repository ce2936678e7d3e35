"""The single interpreter of a process that may import this package: native code keeps addresses of its objects."""

from __future__ import annotations

import ctypes


def require_main_interpreter() -> None:
    """ImportError in a sub-interpreter."""
    main, own = ctypes.pythonapi.PyInterpreterState_Main, ctypes.pythonapi.PyInterpreterState_Get
    main.restype = own.restype = ctypes.c_void_p
    if main() != own():
        raise ImportError(
            "tracecomp cannot be imported in a sub-interpreter: its compiled code belongs to the main interpreter. Use "
            "threads or processes (for mod_wsgi: WSGIApplicationGroup %{GLOBAL})"
        )
