"""Conversions between text and bytes by codecs and error handlers that programs may register."""

from __future__ import annotations

import codecs
from collections.abc import Mapping, Sequence
from typing import Any

from tracecomp.record.guards.read_steps import Codec, ErrorHandler
from tracecomp.record.watching import Watching

_CODECS = frozenset({"utf8", "utf16", "utf32", "ascii", "usascii", "latin1", "iso88591", "iso8859"})
"""Codecs that CPython finds without a search."""
_HANDLERS = frozenset({
    "strict", "ignore", "replace", "xmlcharrefreplace", "backslashreplace", "namereplace", "surrogateescape",
    "surrogatepass",
})  # fmt: skip


def converted(
    observer: Watching, callee: Any, name: str | None, args: Sequence[object], kwargs: Mapping[str, object]
) -> None:
    """Record which codec and which error handler a method or constructor looks up."""
    if isinstance(callee, type) and callee in (str, bytes, bytearray):
        args = args[1:]
    elif name not in ("encode", "decode"):
        return
    given = {**dict(zip(("encoding", "errors"), args, strict=False)), **kwargs}
    encoding, errors = given.get("encoding"), given.get("errors")
    root = observer.reads.root(codecs, "codecs")
    if isinstance(encoding, str) and encoding.lower().replace("-", "").replace("_", "") not in _CODECS:
        codec = Codec(encoding)
        observer.step(root, codec, codec.fetch(codecs), f"the codec {encoding}")
    if isinstance(errors, str) and errors not in _HANDLERS:
        handler = ErrorHandler(errors)
        observer.step(root, handler, handler.fetch(codecs), f"the error handler {errors}")
