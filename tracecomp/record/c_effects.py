"""C functions and types that neither read nor change anything but what they are given.

A recording sees the instructions of Python functions, not what a function in C does. A call of a function in C is
therefore recorded only if it is listed here. All others run as Python at every call. Functions are listed by module and
name, types by module and name for all of their methods. The observer reads arguments in full, and compares them after
the call. So a listed function may read and change its arguments.
"""

from __future__ import annotations

from types import BuiltinFunctionType, MethodDescriptorType, MethodWrapperType, ModuleType, WrapperDescriptorType
from typing import Any

from tracecomp.base.code_origin import is_pythons_module

FUNCTIONS: dict[str, str] = {
    "builtins": "abs aiter all anext any ascii bin callable chr compile delattr dir divmod format getattr globals "
    "hasattr hash hex id isinstance issubclass iter len locals max min next oct ord pow print repr round setattr "
    "sorted sum vars __build_class__ __import__",
    "math": "*", "cmath": "*", "_operator": "*", "operator": "*", "_bisect": "*", "_heapq": "*", "binascii": "*",
    "unicodedata": "*", "_statistics": "*", "_string": "*", "_json": "*", "_stat": "*", "_opcode": "*",
    "_struct": "*", "marshal": "dumps loads", "_pickle": "dumps loads",
    "_functools": "reduce cmp_to_key", "functools": "reduce cmp_to_key", "itertools": "tee",
    "_collections": "_count_elements", "array": "_array_reconstructor", "_typing": "_idfunc", "_sre": "*",
    "_codecs": "ascii_decode ascii_encode charmap_build charmap_decode charmap_encode escape_decode escape_encode "
    "latin_1_decode latin_1_encode readbuffer_encode raw_unicode_escape_decode raw_unicode_escape_encode "
    "unicode_escape_decode unicode_escape_encode utf_16_be_decode utf_16_be_encode utf_16_decode utf_16_encode "
    "utf_16_ex_decode utf_16_le_decode utf_16_le_encode utf_32_be_decode utf_32_be_encode utf_32_decode utf_32_encode "
    "utf_32_ex_decode utf_32_le_decode utf_32_le_encode utf_7_decode utf_7_encode utf_8_decode utf_8_encode",
    "zlib": "adler32 compress compressobj crc32 decompress decompressobj",
    "_hashlib": "compare_digest hmac_digest hmac_new new openssl_md5 openssl_sha1 openssl_sha224 openssl_sha256 "
    "openssl_sha384 openssl_sha512 openssl_sha3_224 openssl_sha3_256 openssl_sha3_384 openssl_sha3_512 "
    "openssl_shake_128 openssl_shake_256 pbkdf2_hmac scrypt",
    "_md5": "*", "_sha1": "*", "_sha2": "*", "_sha256": "*", "_sha512": "*", "_sha3": "*", "_blake2": "*",
    "sys": "exc_info exception getdefaultencoding getfilesystemencodeerrors getfilesystemencoding intern is_finalizing",
    "posix": "fspath getpid _path_normpath _path_splitroot _path_splitroot_ex",
    "gc": "collect", "_thread": "allocate allocate_lock get_ident get_native_id RLock lock",
    "_abc": "get_cache_token _abc_instancecheck _abc_subclasscheck", "_datetime": "*", "datetime": "*",
    "numpy": "arange array asanyarray asarray ascontiguousarray asfortranarray datetime_data empty from_dlpack "
    "frombuffer fromiter fromstring may_share_memory nested_iters promote_types zeros",
    "numpy.lib": "add_docstring", "numpy.lib.array_utils": "normalize_axis_index", "numpy.char": "compare_chararrays",
    "numpy._core.multiarray": "_reconstruct scalar",
    "numpy._core._multiarray_umath": "_discover_array_parameters _get_castingimpl _get_implementing_args "
    "_get_sfloat_dtype _monotonicity _place _unique_hash _vec_string bincount busday_count busday_offset c_einsum "
    "can_cast concatenate copyto correlate correlate2 count_nonzero datetime_as_string dot dragon4_positional "
    "dragon4_scientific empty_like format_longfloat inner interp interp_complex is_busday lexsort min_scalar_type "
    "packbits putmask ravel_multi_index result_type shares_memory unpackbits unravel_index vdot where",
}  # fmt: skip
"""By module: the names of such functions, or ``*`` for all of the module."""

BY_LIBRARIES: dict[str, str] = {
    "builtins": "exec eval", "sys": "*", "_thread": "*", "gc": "*", "_abc": "*", "_imp": "*", "_warnings": "*",
    "_weakref": "*", "_codecs": "*", "_contextvars": "*", "_opcode": "*", "_symtable": "*", "atexit": "*",
    "marshal": "*", "numpy": "frompyfunc", "numpy._core._multiarray_umath": "*",
}  # fmt: skip
"""Functions that Python's library may call in addition: they find the program's own frames, or keep caches."""

TYPES: dict[str, str] = {
    "builtins": "*", "_collections": "*", "collections": "*", "_functools": "*", "functools": "*", "itertools": "*",
    "_operator": "*", "operator": "*", "datetime": "*", "decimal": "","array": "*", "_struct": "*",
    "re": "*", "_sre": "*", "types": "*", "typing": "*", "_typing": "*", "_json": "*", "json": "*",
    "zlib": "*", "_hashlib": "*", "_md5": "*", "_sha1": "*", "_sha2": "*", "_sha256": "*",
    "_sha512": "*", "_sha3": "*", "_blake2": "*", "weakref": "*", "_weakref": "*", "_pickle": "Pickler Unpickler",
    "_abc": "*", "abc": "*", "ast": "*", "_ast": "*", "_thread": "lock RLock _local", "_contextvars": "*",
    "contextvars": "*", "unicodedata": "*", "_bz2": "*", "_lzma": "*", "_csv": "*", "_elementtree": "*",
    "xml.etree.ElementTree": "*", "_statistics": "*", "string": "*", "_string": "*", "zoneinfo": "*", "_zoneinfo": "*",
    "numpy": "*", "numpy.dtypes": "*", "numpy._core._multiarray_umath": "*", "numpy._core.multiarray": "*",
}  # fmt: skip
"""By module: types whose objects do not reach beyond what they hold."""

METHODS = frozenset({
    "datetime.now", "datetime.utcnow", "datetime.today", "datetime.fromtimestamp", "datetime.timestamp",
    "datetime.astimezone", "date.today", "date.fromtimestamp", "type.__subclasses__", "type.register",
    "ndarray.tofile", "ndarray.dump", "memmap.flush", "array.fromfile", "array.tofile", "lock.locked", "lock.acquire",
    "BaseException.add_note", "BaseException.with_traceback",
    "_lru_cache_wrapper.cache_info", "_lru_cache_wrapper.cache_clear",
})  # fmt: skip
"""Methods of these types that do."""

_CALLED_BY = (BuiltinFunctionType, MethodWrapperType)


def is_c_function(fn: object) -> bool:
    """Whether ``fn`` is a function in C, also of a type that Cython or nanobind brings along."""
    return isinstance(fn, BuiltinFunctionType) or type(fn).__name__ in ("cython_function_or_method", "nb_func")


def _listed(table: dict[str, str], module: str, name: str) -> bool:
    names = table.get(module)
    return names is not None and (names == "*" or name in names.split())


def unlisted(callee: Any, by_library: bool) -> str | None:
    """The name of a function or method in C of Python or numpy that is not listed, or None."""
    if isinstance(callee, MethodDescriptorType | WrapperDescriptorType):
        return _unlisted_method(callee.__objclass__, callee.__name__, by_library)
    if isinstance(callee, _CALLED_BY) and callee.__self__ is not None and not isinstance(callee.__self__, ModuleType):
        held = callee.__self__
        kind = held if isinstance(held, type) and any(callee.__name__ in vars(k) for k in held.__mro__) else type(held)
        return _unlisted_method(kind, callee.__name__, by_library)
    module = getattr(callee, "__module__", None)
    if not is_c_function(callee) or not isinstance(module, str) or not is_pythons_module(module):
        return None
    name = callee.__name__
    if _listed(FUNCTIONS, module, name) or (by_library and _listed(BY_LIBRARIES, module, name)):
        return None
    return f"{module}.{name}"


def _unlisted_method(kind: type, name: str, by_library: bool) -> str | None:
    """The name of a method in C that is not listed, of ``kind`` or its bases."""
    home = next((k for k in kind.__mro__ if name in vars(k)), kind)
    if not by_library and f"{home.__name__}.{name}" in METHODS:
        return f"{home.__name__}.{name}"
    module = home.__module__
    if not isinstance(module, str) or not is_pythons_module(module) or _listed(TYPES, module, home.__name__):
        return None
    return None if by_library else f"{home.__name__}.{name}"
