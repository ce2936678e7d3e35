"""Settings and modes around compiled calls: every call repeats its changes, and the initial values are guarded."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import tracecomp as torch
from tracecomp import _tensor_str as printing
from tracecomp.distributions import Distribution
from tracecomp.utils._python_dispatch import TorchDispatchMode
from tracecomp.utils.flop_counter import FlopCounterMode

pytestmark = pytest.mark.filterwarnings("ignore:graph break in")
Setting = tuple[Callable[[Any], object], Callable[[], Any], Any, Any]


def _set(owner: object, name: str) -> Callable[[Any], None]:
    return lambda value: setattr(owner, name, value)


def _numpy_precision(value: int) -> None:
    np.set_printoptions(precision=value)


def _deterministic_warnings(value: bool) -> None:
    torch.use_deterministic_algorithms(value, warn_only=value)


def _print_precision(value: int) -> None:
    torch.set_printoptions(precision=value)


future, cudnn, cuda = torch.__future__, torch.backends.cudnn, torch.backends.cuda
SETTINGS: dict[str, Setting] = {
    "grad": (torch.set_grad_enabled, torch.is_grad_enabled, True, False),
    "dtype": (torch.set_default_dtype, torch.get_default_dtype, torch.float32, torch.float64),
    "deterministic": (
        torch.use_deterministic_algorithms, torch.are_deterministic_algorithms_enabled, False, True,
    ),
    "warn only": (
        _deterministic_warnings, torch.is_deterministic_algorithms_warn_only_enabled, False, True,
    ),
    "debug mode": (torch.set_deterministic_debug_mode, torch.get_deterministic_debug_mode, 0, 1),
    "precision": (torch.set_float32_matmul_precision, torch.get_float32_matmul_precision, "highest", "medium"),
    "warn always": (torch.set_warn_always, torch.is_warn_always_enabled, False, True),
    "printing": (_print_precision, lambda: printing.PRINT_OPTS.precision, 4, 2),
    "print options": (_set(printing.PRINT_OPTS, "edgeitems"), lambda: printing.PRINT_OPTS.edgeitems, 3, 2),
    "threads": (torch.set_num_threads, torch.get_num_threads, 1, 2),
    "device": (torch.set_default_device, lambda: torch.get_default_device().type, "cpu", "meta"),
    "cudnn": (_set(cudnn, "benchmark"), lambda: cudnn.benchmark, False, True),
    "tf32": (_set(cuda.matmul, "allow_tf32"), lambda: vars(cuda.matmul)["allow_tf32"], False, True),
    "attention": (cuda.enable_flash_sdp, cuda.flash_sdp_enabled, True, False),
    "conversion": (
        future.set_swap_module_params_on_conversion, future.get_swap_module_params_on_conversion, False, True,
    ),
    "validation": (Distribution.set_default_validate_args, lambda: Distribution._validate_args, True, False),
    "anomaly": (torch.autograd.set_detect_anomaly, torch.is_anomaly_enabled, False, True),
    "seed": (torch.manual_seed, lambda: torch.get_rng_state().tolist(), 1, 7),
    "numpy's seed": (np.random.seed, lambda: int(np.random.get_state(legacy=False)["state"]["key"][0]), 1, 7),
    "numpy's printing": (_numpy_precision, lambda: np.get_printoptions()["precision"], 8, 3),
}  # fmt: skip


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """Every setting as it was."""
    threads, state = torch.get_num_threads(), np.random.get_state()
    random = torch.get_rng_state()
    yield
    for put, _, usual, _ in SETTINGS.values():
        put(usual)
    torch.set_num_threads(threads)
    torch.set_rng_state(random)
    np.random.set_state(state)


def _after(fn: Callable[[Any], Any], setting: Setting) -> list[Any]:
    """Return the setting after repeated calls of ``fn``, starting from the usual value and from the one that ``fn``
    sets."""
    put, get, usual, other = setting
    found = []
    for start in (usual, usual, usual, other, usual, other):
        put(usual)
        x = torch.ones(2)
        put(start)
        result = fn(x)
        left = get()
        put(usual)
        found.append((left, result.tolist()))
    return found


@pytest.mark.parametrize("name", SETTINGS)
def test_what_a_call_sets_it_sets_at_every_call(name: str) -> None:
    put, _, _, other = SETTINGS[name]

    def f(x: Any) -> Any:
        y = x * 2
        put(other)
        return y

    assert _after(torch.compile(f), SETTINGS[name]) == _after(f, SETTINGS[name])


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_that_is_read_is_guarded(name: str) -> None:
    _, get, usual, _ = SETTINGS[name]
    SETTINGS[name][0](usual)
    first = get()

    def f(x: Any) -> Any:
        return x * 2 if get() == first else x * 3

    assert _after(torch.compile(f), SETTINGS[name]) == _after(f, SETTINGS[name])


def test_printing_after_a_setting_was_changed_is_printed_so(capsys: pytest.CaptureFixture[str]) -> None:
    shown = torch.tensor([1 / 3])

    def f(x: Any) -> Any:
        torch.set_printoptions(precision=2)
        print(shown)
        return x * 2

    compiled = torch.compile(f)
    for _ in range(3):
        compiled(torch.ones(2))
        torch.set_printoptions(precision=4)
    assert capsys.readouterr().out == "tensor([0.33])\n" * 3


class _Tenfold(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        return out * 10 if getattr(func, "__name__", "") == "sin" else out


class _Counting(TorchDispatchMode):
    seen = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        _Counting.seen += 1
        return func(*args, **(kwargs or {}))


class _Flops(FlopCounterMode):
    seen = 0

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        _Flops.seen += self.get_total_flops()


class _Packed:
    """Tensors saved for backward are unpacked twice as large."""

    seen = 0

    def __new__(cls) -> Any:
        def pack(t: Any) -> Any:
            _Packed.seen += 1
            return t * 2

        return torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t)


SURROUNDINGS: dict[str, Callable[[], Any]] = {
    "no_grad": torch.no_grad,
    "inference": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "device": lambda: torch.device("meta"),
    "device cpu": lambda: torch.device("cpu"),
    "function mode": _Tenfold,
    "dispatch mode": _Counting,
    "counted": lambda: _Flops(display=False),
    "saved tensors": _Packed,
    "anomaly": torch.autograd.detect_anomaly,
    "profiler": torch.autograd.profiler.profile,
}


def _observed(fn: Callable[[Any], Any], around: Callable[[], Any], pattern: Sequence[bool]) -> list[Any]:
    """Return the results of calls of ``fn``. Calls in ``pattern`` run within a surrounding context."""
    found = []
    for inside in pattern:
        _Counting.seen = _Flops.seen = _Packed.seen = 0
        x = torch.tensor([[0.0, 2.0]], requires_grad=True)
        if inside:
            with around():
                y = fn(x)
        else:
            y = fn(x)
        grad: Any = None
        if y.requires_grad and y.device.type == "cpu":
            y.float().sum().backward()
            grad = x.grad.tolist()
        values = y.tolist() if y.device.type == "cpu" else None
        found.append((
            y.dtype, y.device.type, y.requires_grad, y.is_inference(), values, grad,
            _Counting.seen, _Flops.seen, _Packed.seen,
        ))  # fmt: skip
    return found


def _products(x: Any) -> Any:
    return torch.sin(x) @ torch.tensor([[1.0], [3.0]]) * x.sum()


def _made(x: Any) -> Any:
    return torch.ones(2) * 2


@pytest.mark.filterwarnings("ignore:.*device_type")
@pytest.mark.parametrize("name", SURROUNDINGS)
@pytest.mark.parametrize("first", [False, True])
def test_calls_heed_what_surrounds_them(name: str, first: bool) -> None:
    for program in (_products, _made):
        if name == "device" and program is _products:  # arguments with memory and constants without do not meet
            continue
        for pattern in itertools.product((False, True), repeat=3):
            calls = (first, first, *pattern)
            want = _observed(program, SURROUNDINGS[name], calls)
            assert _observed(torch.compile(program), SURROUNDINGS[name], calls) == want, calls


def test_anomalies_are_found_in_compiled_backward_passes() -> None:
    def step(x: Any) -> Any:
        (x.sqrt() * 0).sum().backward()
        return x.grad

    def within(x: Any) -> Any:
        with torch.autograd.detect_anomaly():
            (x.sqrt() * 0).sum().backward()
        return x.grad

    def outcomes(fn: Callable[[Any], Any]) -> list[str]:
        found = []
        for value, looks in itertools.product((1.0, 0.0, 1.0, 0.0), (False, True)):
            x = torch.tensor([value], requires_grad=True)
            try:
                with torch.autograd.set_detect_anomaly(looks):
                    found.append(str(fn(x).tolist()))
            except RuntimeError as error:
                found.append(str(error))
        return found

    with pytest.warns(UserWarning, match="Error detected"):
        for fn in (step, within):
            assert outcomes(torch.compile(fn)) == outcomes(fn)


def test_a_replaced_state_of_the_generator_is_drawn_from() -> None:
    generator = torch.default_generator
    before = generator.state
    compiled = torch.compile(lambda x: x + torch.rand(2))
    try:
        for seed in (1, 1, 2, 3):
            generator.state = torch.tensor([seed, 0])
            got = compiled(torch.zeros(2))
            generator.state = torch.tensor([seed, 0])
            assert torch.equal(got, torch.rand(2))
    finally:
        generator.state = before


def _measured(x: Any) -> Any:
    m = torch.empty(3, 4, device="meta")
    return x + (m @ m.t()).numel()


def _measured_by_argument(x: Any) -> Any:
    m = torch.empty(x.shape[0], 3, device="meta")
    return x * (m @ m.t()).numel()


def _within_device(x: Any) -> Any:
    with torch.device("meta"):
        m = torch.ones(3)
    return x + m.numel()


def _moved(x: Any) -> Any:
    return x * x.to("meta").shape[0] + x.new_empty(2, device="meta").numel()


@pytest.mark.parametrize("program", [_measured, _measured_by_argument, _within_device, _moved])
def test_tensors_without_memory_inside_of_a_call(program: Callable[[Any], Any]) -> None:
    compiled = torch.compile(program)
    for size in (2, 2, 3, 4, 4, 2):
        x = torch.arange(size).float()
        assert torch.equal(compiled(x), program(x))


@pytest.mark.parametrize(
    "program",
    [
        lambda x: x * 2,
        lambda x: x.to("meta"),
        lambda x: torch.empty_like(x, device="meta"),
        lambda x: torch.empty_strided((2, 3), (3, 1), device="meta"),
    ],
)
def test_tensors_without_memory_as_arguments_and_results(program: Callable[[Any], Any]) -> None:
    compiled = torch.compile(program)
    for size, device in ((2, "meta"), (2, "cpu"), (2, "meta"), (3, "cpu"), (2, "cpu"), (4, "meta")):
        x = torch.ones(size, device=device)
        got, want = compiled(x), program(x)
        assert (got.device, got.shape, got.stride()) == (want.device, want.shape, want.stride())
