"""PyTorch's test helpers that libraries import: ``TestCase``, parametrized methods, flags about the environment."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import sys
import tempfile
import unittest
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from tracecomp.autograd.gradcheck import gradcheck as gradcheck
from tracecomp.autograd.gradcheck import gradgradcheck as gradgradcheck
from tracecomp.eager.rng import get_rng_state, set_rng_state
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.testing import assert_close
from tracecomp.testing import make_tensor as make_tensor

V = TypeVar("V")
IS_WINDOWS = sys.platform == "win32"
IS_LINUX = sys.platform.startswith("linux")
IS_MACOS = sys.platform == "darwin"
IS_CI = bool(os.environ.get("CI"))
IS_FBCODE = IS_SANDCASTLE = IS_JETSON = False
TEST_NUMPY = True
TEST_CUDA = TEST_MULTIGPU = TEST_MPS = TEST_XPU = TEST_WITH_ROCM = False
TEST_WITH_TORCHDYNAMO = TEST_WITH_TORCHINDUCTOR = TEST_WITH_CROSSREF = False
TEST_WITH_SLOW = os.environ.get("PYTORCH_TEST_WITH_SLOW") == "1"
TEST_WITH_ASAN = TEST_WITH_TSAN = TEST_WITH_UBSAN = False

_NUMBERS = (bool, int, float, complex, np.generic)


def _as_is(test: V) -> V:
    return test


skipIfRocm = skipIfTorchDynamo = skipIfTorchInductor = skipIfCrossRef = _as_is
"""Decorators for places where these tests never are; with a reason they are called first."""


def slowTest(test: Callable[..., object]) -> Callable[..., object]:
    """A test that runs where PYTORCH_TEST_WITH_SLOW=1."""
    return (
        test if TEST_WITH_SLOW else unittest.skip("test is slow; run with PYTORCH_TEST_WITH_SLOW to enable test")(test)
    )


class TestCase(unittest.TestCase):
    """``unittest.TestCase`` whose ``assertEqual`` compares tensors, arrays, numbers and containers of them."""

    precision = 0.0
    """Absolute tolerance at the least."""
    rel_tol = 0.0
    maxDiff = None

    def assertEqual(
        self, x: object, y: object, msg: object = None, *, atol: float | None = None, rtol: float | None = None,
        equal_nan: bool = True, exact_dtype: bool = True, exact_device: bool = False, exact_layout: bool = False,
        exact_stride: bool = False, exact_is_coalesced: bool = False,
    ) -> None:  # fmt: skip
        """AssertionError unless both are the same within the tolerances of ``torch.testing.assert_close``."""
        x, y = _comparable(x, y)
        if _kind(x) is None and _kind(y) is None:
            super().assertEqual(x, y, msg)
            return
        if atol is not None or rtol is not None:
            atol, rtol = atol or 0.0, rtol or 0.0
        elif self.precision or self.rel_tol:
            atol, rtol = self.precision, self.rel_tol
        try:
            assert_close(
                x, y, atol=atol, rtol=rtol, equal_nan=equal_nan, check_dtype=exact_dtype, check_stride=exact_stride
            )
        except TypeError:  # contents that are not numbers: text, None, objects
            if _kind(x) in ("sequence", "mapping"):
                self._equal_parts(x, y, msg, atol, rtol, equal_nan, exact_dtype)
            else:
                super().assertEqual(x, y, msg)
        except AssertionError as error:
            said = msg(str(error)) if callable(msg) else f"{error}\n{msg}" if msg else str(error)
            raise self.failureException(said) from None

    def _equal_parts(
        self, x: Any, y: Any, msg: object, atol: float | None, rtol: float | None, equal_nan: bool, exact_dtype: bool
    ) -> None:
        options: dict[str, Any] = {"atol": atol, "rtol": rtol, "equal_nan": equal_nan, "exact_dtype": exact_dtype}
        if isinstance(x, Mapping):
            super().assertEqual(set(x), set(y), msg)
            for key in x:
                self.assertEqual(x[key], y[key], msg, **options)
            return
        super().assertEqual(len(x), len(y), msg)
        for a, b in zip(x, y, strict=True):
            self.assertEqual(a, b, msg, **options)

    def assertNotEqual(  # type: ignore[override]
        self,
        x: object,
        y: object,
        msg: object = None,
        *,
        atol: float | None = None,
        rtol: float | None = None,
        **options: Any,
    ) -> None:
        """AssertionError when ``assertEqual`` has none."""
        with self.assertRaises(AssertionError, msg=msg):
            self.assertEqual(x, y, msg, atol=atol, rtol=rtol, **options)

    def assertEqualIgnoreType(self, *args: Any, **kwargs: Any) -> None:
        """``assertEqual`` that ignores dtypes."""
        self.assertEqual(*args, exact_dtype=False, **kwargs)


def _kind(x: object) -> str | None:
    if isinstance(x, (Tensor, np.ndarray, *_NUMBERS)):
        return "numbers"
    if isinstance(x, Mapping):
        return "mapping"
    return "sequence" if isinstance(x, Sequence) and not isinstance(x, str | bytes) else None


def _comparable(x: Any, y: Any) -> tuple[Any, Any]:
    """Convert a number or an array to a tensor of the other operand's dtype."""
    if isinstance(x, Tensor) and isinstance(y, (*_NUMBERS, np.ndarray)):
        y = T.as_tensor(y) if isinstance(y, np.ndarray) else T.tensor(y, dtype=x.dtype).expand(x.shape)
    elif isinstance(y, Tensor) and isinstance(x, (*_NUMBERS, np.ndarray)):
        y, x = _comparable(y, x)
    return x, y


def run_tests(argv: Sequence[str] | None = None) -> None:
    """The tests of the main module, by ``unittest``."""
    unittest.main(argv=list(sys.argv if argv is None else argv))


class subtest:
    """Values of one case of ``parametrize``, with an optional name and decorators."""

    def __init__(
        self, arg_values: Any, name: str | None = None, decorators: Iterable[Callable[..., object]] = ()
    ) -> None:
        self.arg_values, self.name, self.decorators = arg_values, name, tuple(decorators)


class parametrize:
    """Cases of a test method, made by ``instantiate_parametrized_tests``; several decorators give all combinations."""

    def __init__(self, arg_str: str, arg_values: Iterable[object], name_fn: Callable[..., str] | None = None) -> None:
        self.names = [name.strip() for name in arg_str.split(",") if name.strip()]
        self.values = list(arg_values)
        self.name_fn = name_fn

    def __call__(self, test: Any) -> Any:
        test.parametrize_fn = [self, *getattr(test, "parametrize_fn", [])]
        return test

    def cases(self) -> Iterator[tuple[str, dict[str, Any], tuple[Any, ...]]]:
        """Suffix, arguments and decorators of each."""
        for value in self.values:
            case: subtest = value if isinstance(value, subtest) else subtest(value)
            given = [case.arg_values] if len(self.names) == 1 else list(case.arg_values)
            arguments = dict(zip(self.names, given, strict=True))
            suffix = case.name or (self.name_fn(*given) if self.name_fn else _suffix(arguments))
            yield suffix, arguments, case.decorators


def _suffix(arguments: Mapping[str, object]) -> str:
    def said(value: object) -> str:
        return getattr(value, "__name__", str(value)).replace(".", "_").removeprefix("torch_")

    return "_".join(f"{name}_{said(value)}" for name, value in arguments.items())


def instantiate_parametrized_tests(generic_cls: Any) -> Any:
    """The class with a method for each case in the place of every parametrized one."""
    for name, test in list(vars(generic_cls).items()):
        listed = getattr(test, "parametrize_fn", None)
        if listed is None:
            continue
        delattr(generic_cls, name)
        for combination in itertools.product(*[list(p.cases()) for p in listed]):
            made = _case(test, {k: v for _, arguments, _ in combination for k, v in arguments.items()})
            for decorate in [d for _, _, decorators in combination for d in decorators]:
                made = decorate(made)
            made.__name__ = f"{name}_{'_'.join(suffix for suffix, _, _ in combination)}"
            setattr(generic_cls, made.__name__, made)
    return generic_cls


def _case(test: Callable[..., object], arguments: dict[str, object]) -> Any:
    @functools.wraps(test)
    def run(self: object) -> object:
        return test(self, **arguments)

    del run.parametrize_fn  # type: ignore[attr-defined]
    return run


@contextlib.contextmanager
def freeze_rng_state() -> Iterator[None]:
    """A context after which the random state is restored."""
    state = get_rng_state()
    try:
        yield
    finally:
        set_rng_state(state)


@contextlib.contextmanager
def TemporaryFileName(*args: object, **kwargs: object) -> Iterator[str]:
    """The name of a file that is there within."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "file" + str(kwargs.get("suffix", "")))
        open(path, "wb").close()
        yield path


@contextlib.contextmanager
def TemporaryDirectoryName(suffix: str | None = None) -> Iterator[str]:
    """The name of a folder that is there within."""
    with tempfile.TemporaryDirectory(suffix=suffix) as folder:
        yield folder
