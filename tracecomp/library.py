"""Custom operators: ``torch.library`` and the namespace ``torch.ops``.

An operator has a name (``"space::name"``), and implementations in Python. Its call runs the implementation for the CPU
without gradients. The formula of ``register_autograd`` computes gradients. An implementation that is registered as
composite is run with gradients. ``ops.aten.name`` is tracecomp's own function of that name.

A call of an operator with a fake function is one node of a recording: every call of the compiled program calls the
implementation. Without a fake function, and for composite implementations, the recording has what these compute.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TypeVar

from tracecomp.autograd import Function
from tracecomp.base.errors import at_user_line
from tracecomp.base.function_schema import FunctionSchema, infer_schema
from tracecomp.base.lazy_names import load_module
from tracecomp.eager import custom_operators
from tracecomp.eager.aliasing import check_types
from tracecomp.eager.modes import grad_enabled, modes, no_grad
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.functional.publish import NAMESPACES
from tracecomp.ir.op import OPS

__all__ = [
    "CustomOpDef", "Library", "custom_op", "define", "get_ctx", "impl", "impl_abstract", "infer_schema", "opcheck",
    "register_autograd", "register_fake", "register_kernel", "register_vmap", "triton_op", "wrap_triton",
]  # fmt: skip

Fn = Callable[..., Any]
F = TypeVar("F", bound=Fn)
_COMPOSITE = ("CompositeImplicitAutograd", "Autograd", "AutogradCPU")
_HERE = ("CPU", "CompositeExplicitAutograd", "BackendSelect", "cpu", None)

_OPERATORS: dict[str, Operator] = {}
_recorded_through = ContextVar("recorded_through", default=False)


@contextmanager
def recorded_through() -> Iterator[None]:
    """Record what implementations of operators compute, not their calls: for files that cannot contain these."""
    before = _recorded_through.set(True)
    try:
        yield
    finally:
        _recorded_through.reset(before)


class Operator:
    """One operator: what ``ops.space.name`` and ``ops.space.name.default`` are."""

    def __init__(self, qualname: str, schema: str = "") -> None:
        self.qualname, self.schema = qualname, schema
        self.kernels: dict[str | None, Fn] = {}
        self.fake: Fn | None = None
        self.backward: Fn | None = None
        self.setup_context: Fn | None = None
        self.vmap: Fn | None = None
        self.__name__ = qualname.rpartition("::")[2]
        self.__qualname__ = self.__name__

    @property
    def default(self) -> Operator:
        """The one overload."""
        return self

    @property
    def _schema(self) -> FunctionSchema:
        return FunctionSchema(self.qualname + (self.schema or _UNKNOWN))

    def name(self) -> str:
        return self.qualname

    def overloads(self) -> list[str]:
        return ["default"]

    def __repr__(self) -> str:
        return f"<OpOverload(op='{self.qualname.replace('::', '.')}', overload='default')>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        kernel = next((self.kernels[k] for k in _COMPOSITE if k in self.kernels), None)
        if kernel is not None:
            return kernel(*args, **kwargs)
        args = self._positional(self._kernel(), args, kwargs)
        tensors = [x for x in _flat(args) if isinstance(x, Tensor)]
        if self.fake is not None and any(t.is_meta for t in tensors):
            return self.fake(*args)
        mapping = modes.recorder is not None and modes.recorder.maps_functions
        if not mapping and not (grad_enabled() and any(t.requires_grad for t in tensors)):
            return self._below_autograd(args)
        return _Call.apply(self, args, *tensors)

    def _kernel(self) -> Fn:
        """The implementation for the CPU. NotImplementedError if there is none."""
        kernel = next((self.kernels[k] for k in _HERE if k in self.kernels), None)
        if kernel is None:
            raise NotImplementedError(at_user_line(f"{self.qualname}: no implementation for the CPU was registered"))
        return kernel

    def _run(self, *args: Any) -> Any:
        return self._kernel()(*args)

    def _below_autograd(self, args: Sequence[object]) -> Any:
        """The results without gradients; one node of a recording if the shapes of the results are known."""
        recorder = modes.recorder
        if self.fake is None or recorder is None or not recorder.holds_opaque or _recorded_through.get():
            with no_grad():
                return self._run(*args)
        schema = self._schema.arguments if self.schema else []
        written = [argument.is_write for argument in schema]
        written += [False] * (len(args) - len(written))  # a schema may be unknown
        return custom_operators.call(self.qualname, self._run, self.fake, args, written)

    @staticmethod
    def _positional(kernel: Fn, args: tuple[object, ...], kwargs: Mapping[str, object]) -> tuple[Any, ...]:
        try:
            bound = inspect.signature(kernel).bind(*args, **kwargs)
        except ValueError:  # a builtin
            return args
        bound.apply_defaults()
        return (*bound.args, *bound.kwargs.values())


def _flat(values: Sequence[object]) -> list[Any]:
    return [y for x in values for y in (_flat(x) if isinstance(x, tuple | list) else [x])]


class _Call(Function):
    """A call whose gradient is the operator's formula; the tensors among the arguments are given once more."""

    @staticmethod
    def forward(operator: Operator, args: tuple[object, ...], *tensors: Tensor) -> Any:
        result = operator._below_autograd(args)
        return tuple(result) if isinstance(result, list) else result

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: object) -> None:
        operator, args, *_ = inputs
        ctx.operator, ctx.args = operator, args
        if operator.setup_context is not None:
            keywords = inspect.signature(operator.setup_context).parameters
            named = {"inputs": args, "keyword_only_inputs": {}, "output": output}
            operator.setup_context(ctx, **{k: v for k, v in named.items() if k in keywords})

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Any, Any]:
        """The operator's own rule, or a call for each example, as in PyTorch."""
        operator, given, *_ = args
        if operator.vmap is not None:
            return operator.vmap(info, in_dims[1], *given)  # type: ignore[no-any-return]
        results = [operator(*_example(given, in_dims[1], i)) for i in range(info.batch_size)]
        if isinstance(results[0], Tensor):
            return T.stack(results), 0
        return tuple([T.stack(list(column)) for column in zip(*results, strict=True)]), 0

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        operator = ctx.operator
        if operator.backward is None:
            raise RuntimeError(
                f"Trying to backward through {operator.qualname.replace('::', '.')}.default but no autograd formula "
                "was registered. Please use register_autograd to add one."
            )
        found = operator.backward(ctx, *grads)
        found = found if isinstance(found, tuple) else (found,)
        pairs: list[Any] = []
        for x, grad in zip(ctx.args, found, strict=False):
            if isinstance(x, Tensor):
                pairs.append(grad)
            elif isinstance(x, tuple | list) and any(isinstance(y, Tensor) for y in x):
                pairs += [None] * len(x) if grad is None else list(grad)
        return (None, None, *pairs)


def _example(values: Any, dims: Any, number: int) -> Any:
    """One example of nested arguments; ``dims`` are nested alike."""
    if isinstance(values, tuple | list):
        return type(values)([_example(x, d, number) for x, d in zip(values, dims, strict=True)])
    return values if dims is None else values.select(dims, number)


class _Namespace:
    """``ops.space``."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        found = _OPERATORS.get(f"{self._name}::{name}") or _MADE.get(self._name, _nothing)(name)
        if found is None and any(Path(path).parent.name == self._name for path in ops.loaded_libraries):
            found = _operator(f"{self._name}::{name}")  # one that the library would have
        if found is None:
            raise AttributeError(f"'_OpNamespace' '{self._name}' object has no attribute '{name}'")
        return found

    def __dir__(self) -> list[str]:
        prefix = f"{self._name}::"
        return [q.removeprefix(prefix) for q in _OPERATORS if q.startswith(prefix)]


class OpOverloadPacket(Operator):
    """``ops.aten.name``: one of tracecomp's functions, which takes what all its overloads take."""

    def __init__(self, qualname: str, schema: str = "") -> None:
        super().__init__(qualname, schema)
        self._found: dict[str, OpOverload] = {}

    def _overload(self, name: str) -> OpOverload:
        if name not in self._found:
            self._found[name] = OpOverload(self, name)
        return self._found[name]

    @property
    def default(self) -> Any:
        return self._overload("default")

    def __getattr__(self, name: str) -> OpOverload:
        if name.startswith("_"):
            raise AttributeError(name)
        return self._overload(name)

    def overloads(self) -> list[str]:
        return list(self._found) or ["default"]

    def __str__(self) -> str:
        return self.qualname.replace("::", ".")

    def __repr__(self) -> str:
        return f"<OpOverloadPacket(op='{self}')>"


_UNKNOWN = "(...) -> ..."
"""The schema of an operator that was defined without one."""


@functools.cache
def _aten_schemas() -> dict[str, str]:
    """PyTorch's schemas of the operators of ``aten``, by name and overload."""
    lines = (Path(__file__).parent / "aten" / "schemas.txt").read_text().splitlines()
    return {f"aten::{line.partition('(')[0]}": f"aten::{line}" for line in lines}


class OpOverload:
    """``ops.aten.add.Tensor``: an overload is a name for calls of its packet. There is one object for each."""

    def __init__(self, packet: OpOverloadPacket, overload: str) -> None:
        self.overloadpacket, self._overloadname = packet, overload
        self.namespace, _, self._opname = packet.qualname.partition("::")
        self.__name__ = f"{self._opname}.{overload}"
        self.__qualname__, self.__module__ = self.__name__, f"torch._ops.{self.namespace}"
        self.tags: list[Any] = []

    @functools.cached_property
    def _schema(self) -> FunctionSchema:
        """PyTorch's schema; that of an overload that PyTorch does not have tells by its name whether it writes."""
        known = _aten_schemas().get(self.name())
        if known is not None:
            return FunctionSchema(known)
        written = self._opname.endswith("_") and not self._opname.startswith("_")
        first = "(Tensor(a!) self, ...) -> Tensor(a!)" if written or self._overloadname == "out" else _UNKNOWN
        return FunctionSchema(self.name() + first)

    @property
    def op(self) -> OpOverload:
        return self

    def name(self) -> str:
        """``aten::add.Tensor``; the default overload has the name of its packet."""
        overload = "" if self._overloadname == "default" else f".{self._overloadname}"
        return self.overloadpacket.qualname + overload

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.overloadpacket(*args, **kwargs)

    def __str__(self) -> str:
        return f"{self.overloadpacket}.{self._overloadname}"

    def __repr__(self) -> str:
        return f"<OpOverload(op='{self.overloadpacket}', overload='{self._overloadname}')>"

    def __reduce__(self) -> Any:
        return _overload_named, (str(self),)


def _overload_named(name: str) -> OpOverload:
    space, packet, overload = name.split(".")
    found: OpOverload = getattr(getattr(getattr(ops, space), packet), overload)
    return found


def _own(name: str) -> Operator | None:
    """The operator for tracecomp's function ``name``; one that only PyTorch has says so when it is called."""
    if name.startswith("__"):
        return None
    load_module("tracecomp.aten")  # imported late, as it registers operators here
    known = _OPERATORS.get(f"aten::{name}")
    if known is not None:
        return known
    operator = OpOverloadPacket(f"aten::{name}")
    for space in ("Tensor", "special", "nn.functional", "torch"):
        found = NAMESPACES.get(space, {}).get(name)
        if callable(found):
            operator.kernels["Autograd"] = found
    return _OPERATORS.setdefault(operator.qualname, operator)


def known_operator(qualname: str) -> OpOverloadPacket:
    """The operator ``qualname``, made when it is new, for those who give it its meaning."""
    found = _OPERATORS.setdefault(qualname, OpOverloadPacket(qualname))
    assert isinstance(found, OpOverloadPacket)
    return found


def _primitive(name: str) -> Operator | None:
    """The operator that is the primitive ``name``."""
    op = OPS.get(name)
    if op is None:
        return None
    operator = known_operator(f"prims::{name}")

    def run(*operands: Any, **attrs: Any) -> Any:
        # Functions pass checked operands to primitives; here the caller, or a file, passes arbitrary ones.
        plain = attrs if modes.recorder is None else modes.recorder.sizes.without_sizes(attrs)
        check_types(op, operands, plain)
        return Tensor.__tracecomp_apply__(op, operands, attrs)

    operator.kernels["Autograd"] = run
    return operator


def is_namespace(name: str) -> bool:
    """Whether ``ops.name`` has operators: tracecomp's, registered ones, or those of a library that was loaded."""
    registered = any(q.startswith(f"{name}::") for q in _OPERATORS)
    return name in _MADE or registered or any(Path(path).parent.name == name for path in ops.loaded_libraries)


class _Ops:
    """``torch.ops``: operators by namespace and name."""

    __name__ = "torch.ops"

    def __init__(self) -> None:
        self.loaded_libraries: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        space = _Namespace(name)
        setattr(self, name, space)
        return space

    def load_library(self, path: Any) -> None:
        """Record ``path``: libraries compiled for PyTorch cannot be loaded, and their operators raise when called.

        Those of torchvision and torchaudio are provided (``interop/``). OSError if the file does not exist.
        """
        if not Path(path).exists():
            raise OSError(f"{path}: no such library")
        for package in {"torchvision", "torchaudio"} & {*Path(path).parts[-3:-1]}:
            load_module(f"tracecomp.interop.{package}")  # imported late, as it registers its operators here
        self.loaded_libraries.add(str(path))


ops = _Ops()


def _operator(op: object) -> Operator:
    """The operator that a name, a definition or an operator means; made when it is new."""
    if isinstance(op, CustomOpDef):
        return op._operator
    if isinstance(op, Operator):
        return op
    if isinstance(op, OpOverload):
        return op.overloadpacket
    name = str(op).partition(".")[0]
    if "::" not in name:
        raise ValueError(f"{op!r}: expected a name like 'namespace::name'")
    return _OPERATORS[name] if name in _OPERATORS else _new(Operator(name))


def _new(operator: Operator) -> Operator:
    """``operator``, known by its name, also to programs that call it."""
    custom_operators.register(operator.qualname, operator._run)
    _OPERATORS[operator.qualname] = operator
    return operator


def _nothing(name: str) -> None:
    return None


_MADE: dict[str, Callable[[str], Operator | None]] = {"aten": _own, "prims": _primitive}
"""Namespaces whose operators are tracecomp's own."""


class CustomOpDef:
    """The result of ``custom_op``: called like the function, with gradients by the registered formula."""

    def __init__(self, operator: Operator, fn: Fn) -> None:
        self._operator = operator
        self._qualname = self._name = operator.qualname
        self._opoverload = operator
        self.__doc__, self.__name__, self.__module__ = fn.__doc__, fn.__name__, fn.__module__
        self._init_fn = fn

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._operator(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<CustomOpDef({self._qualname})>"

    def register_kernel(self, device_types: object, fn: Fn | None = None, /) -> Any:
        return register_kernel(self._operator, device_types, fn)

    def register_fake(self, fn: Fn, /) -> Fn:
        self._operator.fake = fn
        return fn

    register_abstract = register_fake

    def register_autograd(self, backward: Fn, /, *, setup_context: Fn | None = None) -> None:
        register_autograd(self._operator, backward, setup_context=setup_context)

    def register_vmap(self, fn: Fn | None = None, /) -> Any:
        return register_vmap(self._operator, fn)


def custom_op(
    name: str, fn: Fn | None = None, /, *, mutates_args: Any = (), device_types: Any = None, schema: str | None = None,
    tags: Any = None,
) -> Any:  # fmt: skip
    """An operator of ``fn``; also a decorator. Its schema is that of ``infer_schema`` unless ``schema`` is given.

    ValueError for a name without a namespace, and for a function whose schema cannot be inferred.
    """

    def make(fn: Fn) -> CustomOpDef:
        if "::" not in name:
            raise ValueError(at_user_line(f"custom_op(): expected a name like 'namespace::name', not {name!r}"))
        declared = infer_schema(fn, mutates_args=mutates_args) if schema is None else schema
        operator = _new(Operator(name, declared))
        kinds = (device_types,) if device_types is None or isinstance(device_types, str) else device_types
        operator.kernels.update(dict.fromkeys(kinds, fn))
        if name.startswith("transformers::"):
            provided = load_module("tracecomp.interop.transformers")  # imported late, as few programs need it
            if (name, declared) in provided.KERNELS:
                operator.kernels["CompositeImplicitAutograd"] = provided.KERNELS[name, declared]
        return CustomOpDef(operator, fn)

    return make if fn is None else make(fn)


triton_op = custom_op


def wrap_triton(kernel: object) -> Any:
    """NotImplementedError: Triton's kernels need a GPU."""
    raise NotImplementedError(at_user_line("wrap_triton(): Triton's kernels need a GPU"))


def define(qualname: str, schema: str = "", *, lib: object = None, tags: object = ()) -> Any:
    """Make a name known; implementations follow."""
    _operator(qualname.partition("(")[0]).schema = schema
    return lambda fn: fn


def _register(op: object, key: str | None, fn: Fn | None) -> Any:
    if fn is None:
        return lambda fn: _register(op, key, fn)
    _operator(op).kernels[key] = fn
    return fn


def impl(qualname: object, types: Any, func: Fn | None = None, *, lib: object = None) -> Any:
    """``func`` implements the operator for devices ``types``; also a decorator."""
    kinds = (types,) if isinstance(types, str) else tuple(types)

    def register(fn: Fn) -> Fn:
        for kind in kinds:
            _register(qualname, "CompositeExplicitAutograd" if kind == "default" else kind, fn)
        return fn

    return register if func is None else register(func)


def register_kernel(op: object, device_types: object, func: Fn | None = None, /, *, lib: object = None) -> Any:
    """``func`` implements the operator for some devices, None for all; also a decorator."""
    return impl(op, "default" if device_types is None else device_types, func)


def register_fake(
    op: object, func: Fn | None = None, /, *, lib: object = None, _stacklevel: int = 1, allow_override: bool = False
) -> Any:  # fmt: skip
    """``func`` says shapes and types of results for tensors without memory; also a decorator."""
    if func is None:
        return lambda fn: register_fake(op, fn)
    _operator(op).fake = func
    return func


impl_abstract = register_fake


def register_autograd(
    op: object, backward: Fn, /, *, setup_context: Fn | None = None, lib: object = None
) -> None:  # fmt: skip
    """``backward(ctx, *grads)`` gives the arguments' gradients; ``setup_context(ctx, inputs, output)`` prepares."""
    operator = _operator(op)
    operator.backward, operator.setup_context = backward, setup_context


def register_vmap(op: object, func: Fn | None = None, /, *, lib: object = None) -> Any:
    """``func(info, in_dims, *args)`` returns the results for all examples and their ``out_dims``; also a decorator.

    ``vmap`` calls the operator once for each example if there is no ``func``.
    """
    if func is None:
        return lambda fn: register_vmap(op, fn)
    _operator(op).vmap = func
    return func


def get_ctx() -> Any:
    """NotOpaque: asked in a ``register_fake`` function for sizes that depend on values, which have no shape here."""
    raise custom_operators.NotOpaque("calls an operator whose result has a size that depends on values")


def opcheck(
    op: object, args: tuple[object, ...], kwargs: dict[str, object] | None = None, **options: Any
) -> dict[str, str]:
    """Run the operator once; ``{"test_schema": "SUCCESS"}``."""
    _operator(op)(*args, **(kwargs or {}))
    return {"test_schema": "SUCCESS"}


class Library:
    """A namespace into which operators are defined and implemented."""

    def __init__(self, ns: str, kind: str, dispatch_key: str = "") -> None:
        self.ns, self.kind, self.dispatch_key = ns, kind, dispatch_key

    def _name(self, name: object) -> str:
        text = str(name.qualname if isinstance(name, Operator) else name)
        return text if "::" in text else f"{self.ns}::{text}"

    def define(self, schema: str, alias_analysis: str = "", *, tags: object = ()) -> str:
        """Make the operator of ``schema`` (``"name(Tensor x) -> Tensor"``) known; its name."""
        name, bracket, rest = schema.partition("(")
        _operator(self._name(name.strip())).schema = bracket + rest
        return name.strip().partition(".")[0]

    def impl(self, op_name: object, fn: Fn, dispatch_key: str = "", **options: Any) -> None:
        """``fn`` implements the operator for ``dispatch_key``; that for "Meta" is its fake."""
        key = dispatch_key or self.dispatch_key or "CompositeImplicitAutograd"
        if key == "Meta":
            _operator(self._name(op_name)).fake = fn
        else:
            _register(self._name(op_name), key, fn)

    def _register_fake(self, op_name: object, fn: Fn, **options: Any) -> None:
        register_fake(self._name(op_name), fn)
