"""Modes of the current thread: gradient recording, inference, the active graph recorder, scopes of composite names."""

from __future__ import annotations

import functools
import inspect
import threading
import weakref
from collections.abc import Callable, Generator, Mapping, Set
from typing import Any, Self, TypeAlias, TypeVar, cast, overload

from tracecomp.base.interrupts import Leave, before_of
from tracecomp.runtime.threadstate import know_thread


class Modes(threading.local):
    """Modes that affect primitives, per thread."""

    grad: bool = True
    inference: bool = False
    grad_asked: bool = False  # gradients were enabled inside inference mode, which records none
    takes_inference: bool = False  # a transform differentiates: inference tensors are constants
    anomaly: bool = False
    check_nan: bool = True  # whether anomaly mode looks for NaN in gradients
    backward_pass: Any = None  # the pass that runs: hooks ask which nodes it has
    recorder: Any = None
    autocast: Any = None  # the low precision that autocast casts to, while it is on
    scopes: tuple[str, ...] = ()
    watch: Any = None  # called for every primitive that runs; needs ``device.use.begun``
    place: Any = None  # the device of what functions make; None: memory
    default_places: tuple[Any, ...] = ()  # devices of factories that name none, the innermost last
    without_memory: bool = False  # the CPU, too, has tensors without elements
    function_modes: tuple[Any, ...] = ()  # those that see every call of a function, the innermost last
    dispatch_modes: tuple[Any, ...] = ()  # those that see every operator, the innermost last; needs ``use.begun``
    undispatched: bool = False  # modes and subclasses do not handle operators
    levels: tuple[Any, ...] = ()  # forward derivatives being taken, the innermost last; needs ``use.begun``
    grad_above: bool | None = None  # whether the primitive being dispatched is recorded for backward
    plain_subclasses: bool = False  # __torch_function__ of subclasses is not asked
    compared: bool = False  # this eager call is compared with a compiled one
    trial_run: bool = False  # a past call runs again, on copies: it must leave no trace
    stream: Any = None  # the random bits that a trial run draws, instead of those of the default generator
    counted: bool = False  # a call that is counted for machine code runs: those inside it are not
    inside_hot: bool = False  # the call of a module that may compile itself runs: those inside it do not
    untold: bool = False  # this run is recorded for later calls: other processes do not take part in it
    save_hooks: tuple[tuple[Callable[..., Any], Callable[..., Any]], ...] = ()

    def __init__(self) -> None:
        self.__dict__.update(_DEFAULTS)  # no entry is added later: native calls compare words of the dictionary
        know_thread(self.__dict__)


_DEFAULTS = {name: value for name, value in vars(Modes).items() if not name.startswith("__")}
modes = Modes()
EAGER = (
    "place", "without_memory", "function_modes", "dispatch_modes", "undispatched", "plain_subclasses", "save_hooks",
    "anomaly", "watch", "levels", "compared",
)  # fmt: skip
"""Modes under which compiled functions run eagerly: they observe each operator, or its saved values or results."""
Function = TypeVar("Function", bound=Callable[..., Any])


def asks_for_eager() -> str | None:
    """The mode of this thread under which compiled functions run eagerly, or None."""
    own = modes.__dict__
    places = own.get("default_places")
    if places and places[-1].type != "cpu":
        return "default_places"
    return next(filter(own.get, EAGER), None)


def records_history() -> bool:
    """Whether the program records gradients: handlers of operators run without, whatever the program does."""
    return modes.grad if modes.grad_above is None else modes.grad_above


def leave_modes() -> Leave:
    """``__exit__`` of a block that restores modes."""
    return Leave(lambda: modes.__dict__)


class ContextDecorator:
    """A context manager that also decorates functions and generators: ``@no_grad()``, ``@no_grad``."""

    def __enter__(self) -> None:
        raise NotImplementedError

    __exit__ = leave_modes()

    def _fresh(self) -> ContextDecorator:
        return type(self)()

    def __call__(self, fn: Function) -> Function:
        if inspect.isgeneratorfunction(fn):
            return cast("Function", self._around_generator(fn))

        @functools.wraps(fn)
        def run(*args: Any, **kwargs: Any) -> Any:
            with self._fresh():
                return fn(*args, **kwargs)

        return cast("Function", run)

    def _around_generator(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fn)
        def run(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
            generator = fn(*args, **kwargs)
            sent: Any = None
            while True:
                try:
                    with self._fresh():
                        item = generator.send(sent)
                except StopIteration as stop:
                    return stop.value
                sent = yield item

        return run


class _GradMode(ContextDecorator):
    """Sets the gradient mode inside."""

    mode: bool

    @overload
    def __new__(cls, fn: None = None) -> Self: ...
    @overload
    def __new__(cls, fn: Function) -> Function: ...  # type: ignore[misc]
    def __new__(cls, fn: Callable[..., object] | None = None) -> Any:
        self = object.__new__(cls)
        return self if fn is None else self(fn)

    def __enter__(self) -> None:
        # ``_set_grad`` and ``before_of``, inlined: programs enter such blocks at each call.
        own, mode = modes.__dict__, self.mode
        before = self.__dict__.setdefault("_before", {})
        before["grad"], before["grad_asked"], inference = own["grad"], own["grad_asked"], own["inference"]
        own["grad"], own["grad_asked"] = mode and not inference, mode and inference


def _set_grad(mode: bool) -> None:
    modes.grad, modes.grad_asked = mode and not modes.inference, mode and modes.inference


class no_grad(_GradMode):
    """Operations inside make tensors that do not require gradients."""

    mode = False


class enable_grad(_GradMode):
    """Operations inside record gradients, also within ``no_grad``."""

    mode = True


class unrecorded(ContextDecorator):
    """A context that is not recorded: recordings treat its tensors as outside ones."""

    def __enter__(self) -> None:
        before_of(self)["recorder"] = modes.recorder
        modes.recorder = None


_UNSEEN: dict[str, Any] = {
    "grad": False, "inference": False, "grad_asked": False, "anomaly": False, "recorder": None, "watch": None,
    "place": None, "function_modes": (), "undispatched": True, "save_hooks": (), "levels": (),
}  # fmt: skip


class unseen(ContextDecorator):
    """Disable all modes and gradient history inside: a past call is repeated, unobserved."""

    def __enter__(self) -> None:
        before_of(self).update({name: getattr(modes, name) for name in _UNSEEN})
        for name, value in _UNSEEN.items():
            setattr(modes, name, value)


class set_grad_enabled(ContextDecorator):
    """Set the gradient mode now; as a context manager, restore it at the end."""

    def __init__(self, mode: bool) -> None:
        if not isinstance(mode, bool):
            raise TypeError(f"set_grad_enabled(): argument 'mode' (position 1) must be bool, not {type(mode).__name__}")
        before_of(self).update(grad=modes.grad, grad_asked=modes.grad_asked)
        self._mode = mode
        _set_grad(mode)

    def __enter__(self) -> None:
        _set_grad(self._mode)

    def __call__(self, fn: Function) -> Function:
        modes.__dict__.update(before_of(self))
        return super().__call__(fn)

    def _fresh(self) -> set_grad_enabled:
        return set_grad_enabled(self._mode)


class inference_mode(ContextDecorator):
    """Like ``no_grad``, and tensors made inside can never take part in gradient recording."""

    @overload
    def __new__(cls, mode: bool = True) -> Self: ...
    @overload
    def __new__(cls, mode: Function) -> Function: ...  # type: ignore[misc]
    def __new__(cls, mode: bool | Callable[..., object] = True) -> Any:
        self = object.__new__(cls)
        if callable(mode):
            self._mode = True
            return self(mode)
        self._mode = mode
        return self

    _mode: bool

    def __enter__(self) -> None:
        before_of(self).update(
            inference=modes.inference, grad=modes.grad, grad_asked=modes.grad_asked, levels=modes.levels
        )
        modes.inference, modes.grad, modes.grad_asked = self._mode, not self._mode, False
        if self._mode:  # forward derivatives end here too, other than in ``no_grad``
            modes.levels = ()
            # Tensors made from here on lack the history that a transform around this block needs.
            modes.takes_inference = False

    def _fresh(self) -> Any:
        return inference_mode(self._mode)


class differentiating(ContextDecorator):
    """Surround a transform's function: inference mode ends, and inference tensors are constants. Record ``history``.

    Without history, as in forward mode, the gradient mode that the function sets remains, as in PyTorch.
    """

    def __init__(self, history: bool) -> None:
        self._history = history

    def __enter__(self) -> None:
        names = ["inference", "takes_inference"]
        if self._history or modes.inference:
            names += ["grad", "grad_asked"]
        before_of(self).update({name: getattr(modes, name) for name in names})
        modes.inference, modes.grad_asked, modes.takes_inference = False, False, True
        modes.grad = modes.grad or self._history

    def _fresh(self) -> differentiating:
        return differentiating(self._history)


def grad_enabled() -> bool:
    """Whether gradients are enabled in this thread. Inference mode records none, even then."""
    return modes.grad or modes.grad_asked


def is_inference_mode_enabled() -> bool:
    """Whether this thread is inside ``inference_mode``."""
    return modes.inference


class scope:
    """Name the scope of recorded nodes: ``with scope("softmax"): ...``. No cost without a recorder."""

    __slots__ = ("_before", "_name")

    def __init__(self, name: str) -> None:
        self._name = name
        self._before: tuple[str, ...] | None = None

    def __enter__(self) -> None:
        if modes.recorder is not None:
            self._before = modes.scopes
            modes.scopes = (*modes.scopes, self._name)

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if self._before is not None:
            modes.scopes = self._before
            self._before = None


def host(owner: object, key: str) -> Any:
    """``owner[key]`` (or ``owner.key``): a plain number, or in a recording a number that every call reads again.

    For hyper-parameters that change between calls, such as a learning rate.
    """
    value = owner[key] if isinstance(owner, Mapping) else getattr(owner, key)
    recorder = modes.recorder
    return value if recorder is None else recorder.host(owner, key, value)


MEMORY = -1
"""The number, instead of a module's identity, of changes of the memory of tensors, and of views."""


class Watch:
    """Which watched modules have ``changed`` since ``take``; ``moved``: some have. ``all``: or something else has."""

    __slots__ = ("__weakref__", "all", "changed", "moved")

    def __init__(self) -> None:
        self.moved = self.all = False
        self.changed: set[int] = set()

    def note(self, module: int) -> None:
        """Note a change of the module of this identity, or, if that is 0, of something else."""
        if module:
            self.changed.add(module)
        else:
            self.all = True
        self.moved = True

    def take(self) -> Set[int] | None:
        """The identities of modules that have changed; None if something else has. They count as seen."""
        self.moved = False
        changed, self.changed = self.changed, set()
        everything, self.all = self.all, False
        return None if everything else changed

    def put_back(self, changed: Set[int] | None) -> None:
        """Undo ``take``."""
        if changed is None:
            self.all = True
        else:
            self.changed |= changed
        self.moved = True


_Watches: TypeAlias = dict[int, weakref.ref[Watch]]


def _register(watches: _Watches, watch: Watch) -> None:
    """Add a watch, as long as it exists. The table itself stays: another thread may be adding to it."""
    key = id(watch)
    watches[key] = weakref.ref(watch, lambda _: watches.pop(key, None))


class ModuleChanges:
    """Notifies recordings of assignments of plain attributes to the modules that ran in them, and of changes of hooks.

    ``global_hooks`` are the tables of hooks of all modules. ``compared`` tells whether recordings compare attributes of
    a name in modules of a class; their code sets it.
    """

    def __init__(self) -> None:
        self.compared: Callable[[type, str], bool] = lambda kind, name: True
        self.global_hooks: list[Mapping[int, Any]] = []
        self._watches: _Watches = {}
        self._of: dict[int, _Watches] = {}

    def watch(self) -> Watch:
        """A new watch of everything but attributes of modules."""
        watch = Watch()
        _register(self._watches, watch)
        return watch

    def add(self, module: object, watch: Watch) -> None:
        """Watch the attributes of a module, too."""
        _register(self._of.setdefault(id(module), {}), watch)

    def changed(self, module: int = 0) -> None:
        """Note a change of the module of this identity, or of something else."""
        watches = self._of.get(module) if module > 0 else self._watches
        for reference in () if not watches else watches.copy().values():  # other threads and collections change it
            watch = reference()
            if watch is not None:
                watch.note(module)

    def note(self, module: int = 0) -> None:
        """Note a change, unless a recorded program makes it."""
        if modes.recorder is None:
            self.changed(module)

    @staticmethod
    def ran(module: object) -> None:
        """Called for every module whose forward runs while a recorder is active."""
        modes.recorder.module_ran(module)


module_changes = ModuleChanges()
