"""Programs of the corpus that are not right yet, each with the reason."""

_ALIVE = "a recording keeps the objects that it guards alive"

OPEN = {
    "callables: weak method": _ALIVE,
    "callables: weak reference that dies": _ALIVE,
    "callables: weak proxy": _ALIVE,
    "callables: weak finalizer": _ALIVE,
    "containers: weak value dictionary": _ALIVE,
}
