"""Programs of the corpus that are not right yet, each with the reason."""

import functools
import warnings

_ALIVE = "a recording keeps the objects that it guards alive"
_CACHE = "guards look up a cached result by a call, which counts as one and fills the cache"

OPEN = {
    "arrays: error state in effect": "numpy's error state is not guarded where scalars are computed with",
    "attributes: ctypes union": "numpy warns of its memory when the recorder looks",
    "callables: lru cache info": _CACHE,
    "callables: lru cache cleared in the call": _CACHE,
    "callables: weak method": _ALIVE,
    "callables: weak reference that dies": _ALIVE,
    "callables: weak proxy": _ALIVE,
    "callables: weak finalizer": _ALIVE,
    "containers: weak value dictionary": _ALIVE,
    "library: reference count": _ALIVE,
    "library: referrers": _ALIVE,
    "library: garbage collector enabled": "the collector is paused while a call is recorded",
    "library: codec error handler replaced": "the registry of codecs cannot be inspected",
    "names: function of sys frames": "a frame found by its depth is that of a part of the function",
}


class _Holder:
    held = functools.partial(len)


with warnings.catch_warnings(record=True) as _warned:
    warnings.simplefilter("always")
    _Holder().held  # noqa: B018  reading it warns in a version of Python
if _warned:
    OPEN["objects: call is a partial"] = "Python warns of such classes at every call of them, recorded calls do not"
