"""The engines: how each is set up for a number of threads, and how it is given a workload."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.workload import Array, Workload, fill, optimizer

Call = Callable[[], Any]


class Unsupported(Exception):
    """The engine has no such workload."""


class Engine:
    """One engine in this process."""

    name = ""
    eager = False

    def __init__(self, threads: int, cache: Path) -> None:
        self.threads = threads
        self.cache = cache

    def prepare(self, workload: Workload) -> Call:
        """A call that does the work once and returns its results when they are there."""
        raise NotImplementedError

    def arrays(self, result: Any) -> list[Array]:
        """The results as arrays."""
        each = result if isinstance(result, tuple | list) else (result,)
        return [np.asarray(r) for r in each if r is not None]


class TorchLike(Engine):
    """The common part of torch and tracecomp: nearly everything."""

    fused = False
    channels_last = False
    lib: Any

    def compile(self, f: Any) -> Any:
        """``f`` compiled, or itself."""
        return f

    def prepare(self, workload: Workload) -> Call:
        make = {"function": self._function, "inference": self._inference, "training": self._training}
        with_layout = [self._layout(self.lib.from_numpy(a)) for a in workload.arrays()]
        return make[workload.mode](workload, with_layout)

    def arrays(self, result: Any) -> list[Array]:
        each = result if isinstance(result, tuple | list) else (result,)
        return [r.detach().numpy() for r in each if r is not None]

    def _layout(self, t: Any) -> Any:
        return t.contiguous(memory_format=self.lib.channels_last) if self.channels_last and t.dim() == 4 else t

    def _function(self, workload: Workload, tensors: list[Any]) -> Call:
        f = self.compile(workload.torch(self.lib))
        return lambda: f(*tensors)

    def model(self, workload: Workload) -> Any:
        """The model with its first parameters."""
        model = fill(self.lib, workload.torch(self.lib))
        return model.to(memory_format=self.lib.channels_last) if self.channels_last else model

    def _inference(self, workload: Workload, tensors: list[Any]) -> Call:
        model = self.compile(self.model(workload).eval())

        def call() -> Any:
            with self.lib.no_grad():
                return model(*tensors)

        return call

    def loss(self, model: Any) -> Any:
        """The loss of a batch."""

        def loss(x: Any, y: Any) -> Any:
            logits = model(x)
            return self.lib.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), y.reshape(-1))

        return loss

    def _training(self, workload: Workload, tensors: list[Any]) -> Call:
        model = self.model(workload)
        step = self.training_step(
            self.loss(model), optimizer(self.lib, workload.optimizer, model.parameters(), self.fused)
        )
        return lambda: step(*tensors)

    def training_step(self, loss: Any, update: Any) -> Any:
        """One function for the whole step, compiled."""

        def step(x: Any, y: Any) -> Any:
            update.zero_grad()
            value = loss(x, y)
            value.backward()
            update.step()
            return value

        return self.compile(step)


class Tracecomp(TorchLike):
    """tracecomp, compiled as whole graphs: a graph break is an error, as parts would take another time."""

    name = "tracecomp"

    def __init__(self, threads: int, cache: Path) -> None:
        super().__init__(threads, cache)
        self.lib = import_module("tracecomp")

    def compile(self, f: Any) -> Any:
        return self.lib.compile(f, fullgraph=True)


class TracecompEager(Tracecomp):
    """tracecomp on numpy: what the first call of a compiled function takes anyway."""

    name = "tracecomp eager"
    eager = True

    def compile(self, f: Any) -> Any:
        return f


class Torch(TorchLike):
    """torch, eager, with its fused optimizers."""

    name = "torch"
    eager = True
    fused = True

    def __init__(self, threads: int, cache: Path) -> None:
        super().__init__(threads, cache)
        self.lib = import_module("torch")
        self.lib.set_num_threads(threads)

    def prepare(self, workload: Workload) -> Call:
        if self.channels_last and not workload.channels_last:
            raise Unsupported("no images")
        return super().prepare(workload)


class TorchChannelsLast(Torch):
    """torch, eager, with images stored channels last."""

    name = "torch channels_last"
    channels_last = True


class TorchCompile(Torch):
    """torch.compile of functions and models; in training, of the loss and of the optimizer's step."""

    name = "torch.compile"
    eager = False
    fused = False

    def compile(self, f: Any) -> Any:
        self.lib.compiler.reset()
        return self.lib.compile(f)

    def training_step(self, loss: Any, update: Any) -> Any:
        self.lib.compiler.reset()
        loss, move = self.lib.compile(loss), self.lib.compile(update.step)

        def step(x: Any, y: Any) -> Any:
            update.zero_grad()
            value = loss(x, y)
            value.backward()
            move()
            return value

        return step


class Jax(Engine):
    """jax.jit; parameters and optimizer state are donated in training."""

    name = "jax.jit"

    def __init__(self, threads: int, cache: Path) -> None:
        super().__init__(threads, cache)
        self.jax = import_module("jax")

    def prepare(self, workload: Workload) -> Call:
        if workload.jax is None:
            raise Unsupported("writes to its arguments")
        jax = self.jax
        jax.config.update("jax_enable_x64", workload.x64)
        made = workload.jax(jax.numpy)
        arrays = [jax.numpy.asarray(a) for a in workload.arrays()]
        if workload.mode == "function":
            f = jax.jit(made)
            return lambda: jax.block_until_ready(f(*arrays))
        nets = import_module("benchmarks.jax_nets")
        parameters, buffers = nets.start(made, arrays[0], workload.mode == "training")
        if workload.mode == "inference":
            f = jax.jit(nets.inference(made, buffers))
            return lambda: jax.block_until_ready(f(parameters, *arrays))
        return self._training(nets, workload, made, (parameters, buffers), arrays)

    def _training(self, nets: Any, workload: Workload, made: Any, first: Any, arrays: list[Any]) -> Call:
        step = self.jax.jit(nets.training_step(made, workload.optimizer), donate_argnums=(0, 1, 2, 3))
        zero = self.jax.numpy.zeros((), self.jax.numpy.float32)
        state = (*first, nets.first_moments(first[0], workload.optimizer), zero)

        def call() -> Any:
            nonlocal state
            *new, loss = step(*state, *arrays)
            state = tuple(new)
            return self.jax.block_until_ready(loss)

        return call


class Numpy(Engine):
    """numpy, for products of matrices."""

    name = "numpy"
    eager = True

    def prepare(self, workload: Workload) -> Call:
        if workload.kind != "matmul":
            raise Unsupported("numpy runs products of matrices only")
        assert workload.jax is not None
        f, arrays = workload.jax(np), workload.arrays()
        return lambda: f(*arrays)


class OnnxRuntime(Engine):
    """onnxruntime on models that ``exported`` wrote, all optimisations on; outputs are bound once."""

    name = "onnxruntime"

    def __init__(self, threads: int, cache: Path) -> None:
        super().__init__(threads, cache)
        self.runtime = import_module("onnxruntime")

    def prepare(self, workload: Workload) -> Call:
        path = exported_path(self.cache, workload)
        if not path.exists():
            raise Unsupported("torch.onnx does not export it" if workload.export else "not an inference workload")
        options = self.runtime.SessionOptions()
        options.intra_op_num_threads = self.threads
        options.inter_op_num_threads = 1
        session = self.runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        named = dict(zip([i.name for i in session.get_inputs()], workload.arrays(), strict=True))
        return lambda: session.run(None, named)


def exported_path(cache: Path, workload: Workload) -> Path:
    """Return the path of a workload's ONNX file."""
    plain = "".join(c if c.isalnum() else "_" for c in workload.id)
    return cache / "onnx" / f"{plain}.onnx"


class Exporter(Torch):
    """Writes a workload as an ONNX file."""

    name = "exporter"

    def prepare(self, workload: Workload) -> Call:
        path = exported_path(self.cache, workload)
        if not workload.export:
            raise Unsupported("not an inference workload")
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            tensors = tuple(self.lib.from_numpy(a) for a in workload.arrays())
            program = self.lib.onnx.export(self._module(workload).eval(), tensors, dynamo=True, verbose=False)
            program.save(str(path))
        return lambda: None

    def _module(self, workload: Workload) -> Any:
        if workload.mode == "inference":
            return self.model(workload)
        lib, f = self.lib, workload.torch(self.lib)

        class Function(lib.nn.Module):  # type: ignore[name-defined]
            def forward(self, *arguments: Any) -> Any:
                return f(*arguments)

        return Function()


ENGINES: dict[str, type[Engine]] = {
    e.name: e
    for e in (Tracecomp, Torch, TorchChannelsLast, TorchCompile, Jax, OnnxRuntime, Numpy, TracecompEager, Exporter)
}
PEERS = ("torch", "torch channels_last", "torch.compile", "jax.jit", "onnxruntime", "numpy")


def environment(threads: int, cache: Path) -> dict[str, str]:
    """The environment of an engine's process: its threads, and where it keeps compiled code."""
    count = str(threads)
    return {
        **os.environ,
        "OMP_NUM_THREADS": count,
        "MKL_NUM_THREADS": count,
        "OPENBLAS_NUM_THREADS": count,
        "TRACECOMP_NUM_THREADS": count,
        "TRACECOMP_WAIT": "1",
        "TRACECOMP_CACHE_DIR": str(cache / "tracecomp"),
        "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor"),
        "JAX_COMPILATION_CACHE_DIR": str(cache / "jax"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        "JAX_PLATFORMS": "cpu",
    }
