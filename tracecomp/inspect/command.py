"""The command line: ``python -m tracecomp trace|compare|explain`` on a function or module in a file."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import inspect
import json
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from tracecomp.base.errors import TracecompError
from tracecomp.compiled.function import Compiled, trace
from tracecomp.eager.tensor import Tensor
from tracecomp.inspect.capture import capture
from tracecomp.inspect.compare import compare
from tracecomp.inspect.explain import explain
from tracecomp.inspect.summary import summary
from tracecomp.inspect.tensor_files import read_arrays
from tracecomp.ir.printer import print_graph
from tracecomp.ir.types import DType, dtype_named

Operands = tuple[list[Any], dict[str, Any]]

EPILOG = """\
target     file.py:name or package.module:name, where name is a function or an nn.Module, or a dotted path to it
operands   --shape 64,784              a float32 tensor of random numbers, one option per argument
           --shape 64:int64            of a different dtype; integers are in 0..9
           --shape mask=64:bool        a keyword argument
           --inputs data.npz           every array of the file, as keyword arguments (arr_0, arr_1, ...: in order)
           --inputs x.npy              one array
           --inputs w.safetensors      every tensor of the file, as keyword arguments
           --inputs file.py:make       the function's result: a tuple of arguments or a dict of keyword arguments
"""


class UsageError(TracecompError, ValueError):
    """An invalid command line."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments that name a program and its operands."""
    parser.add_argument("target", metavar="file.py:name", help="a function or nn.Module; also package.module:name")
    parser.add_argument("--shape", action="append", default=[], metavar="[NAME=]D0,D1[:TYPE]", help="random operand")
    parser.add_argument("--inputs", action="append", default=[], metavar="FILE", help="operands from a file")
    parser.add_argument("--seed", type=int, default=0, help="seed of random operands (default 0)")


def subcommands(commands: Any) -> None:
    """Add ``trace``, ``compare``, ``explain`` and ``summary`` to an argparse subparsers object."""
    for name, run, line in (
        ("trace", run_trace, "print the recorded graph"),
        ("compare", run_compare, "compare eager, recorded, after each pass and native; locate the first difference"),
        ("explain", run_explain, "list the captured and fused operations, and why others were not"),
        ("summary", run_summary, "list a model's modules with shapes, parameters and operations"),
    ):
        parser = commands.add_parser(
            name, help=line, description=line, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        add_arguments(parser)
        parser.set_defaults(run=run)
        if name == "trace":
            parser.add_argument(
                "-o", "--output", metavar="FILE", help="write the graph to a file instead of printing it"
            )
            parser.add_argument(
                "--save-inputs", metavar="FILE.npz", help="write the arrays of the recording, weights included"
            )
            parser.add_argument("--plain", action="store_true", help="leave out source lines and scopes")
        if name == "explain":
            parser.add_argument("--all", action="store_true", help="every guard, pass, refusal, kernel and schedule")
            parser.add_argument("--json", action="store_true", help="print everything as JSON")
        if name == "summary":
            parser.add_argument("--json", action="store_true", help="print JSON")
        if name == "compare":
            parser.add_argument("--json", action="store_true", help="print the outcome as JSON")
            parser.add_argument("--tolerance", type=float, help="largest relative difference that counts as agreement")
            parser.add_argument("--quiet", action="store_true", help="no progress on standard error")
            parser.add_argument("--loops", action="store_true", help="also interpret the loop program")
            parser.add_argument("--same", action="store_true", help="skip the calls with changed arguments and state")
            parser.add_argument(
                "--check-finite", action="store_true", help="report operators that make NaN or infinity"
            )
            parser.add_argument("--save", metavar="FILE.zip", help="write an archive that reproduces the difference")
            parser.add_argument("--save-inputs", action="store_true", help="add the arrays and weights to the archive")


def run_trace(options: argparse.Namespace) -> int:
    """Print or write the recorded graph."""
    fn, (args, kwargs) = program(options)
    if options.save_inputs:
        captured = capture(fn, tuple(args), kwargs)
        graph = captured.graph
        np.savez(options.save_inputs, *captured.arrays)
    else:
        graph = trace(fn, *args, **kwargs)
    text = print_graph(graph, comments=not options.plain)
    if options.output:
        Path(options.output).write_text(text, encoding="utf-8")
        print(f"wrote {options.output}", file=sys.stderr)
    else:
        print(text.replace(f"{Path.cwd()}{os.sep}", ""), end="")  # paths relative to the user's folder
    return 0


def run_compare(options: argparse.Namespace) -> int:
    """Print a comparison; 1 when something differs."""
    fn, (args, kwargs) = program(options)
    result = compare(
        fn, *args, tolerance=options.tolerance, report=_progress(options.quiet), loops=options.loops,
        changed=not options.same, check_finite=options.check_finite, **kwargs,
    )  # fmt: skip
    print(json.dumps(result.data()) if options.json else result)
    if options.save and result.at_fault is None:
        print(f"{options.save} not written: no graph differs", file=sys.stderr)
    elif options.save:
        result.save(options.save, inputs=options.save_inputs)
    return 0 if result.ok else 1


def run_explain(options: argparse.Namespace) -> int:
    """Print the decisions."""
    fn, (args, kwargs) = program(options)
    if not args and not kwargs:
        fn = called(compiled_of(fn))
    found = explain(fn, *args, **kwargs)
    print(found.text(options.all) if not options.json else json.dumps(found.data()))
    return 0


def run_summary(options: argparse.Namespace) -> int:
    """Print the modules of a model."""
    model, (args, kwargs) = program(options)
    if not hasattr(model, "named_modules"):
        raise UsageError(f"{options.target} is a {type(model).__name__}, not an nn.Module")
    found = summary(model, *args, **kwargs)
    print(json.dumps(asdict(found)) if options.json else found)
    return 0


def _progress(quiet: bool) -> Callable[[str], None]:
    """One line that is overwritten on a terminal, separate lines elsewhere."""
    if quiet:
        return lambda line: None
    if sys.stderr.isatty():
        return lambda line: print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)
    return lambda line: print(line, file=sys.stderr, flush=True)


def program(options: argparse.Namespace) -> tuple[Callable[..., Any], Operands]:
    """The function that the options name, and its operands. UsageError describes invalid options."""
    fn = load(options.target)
    if not callable(fn):
        raise UsageError(f"{options.target} is a {type(fn).__name__}, not a function or nn.Module")
    args: list[Any] = []
    kwargs: dict[str, object] = {}
    rng = np.random.default_rng(options.seed)
    for text in options.shape:
        name, value = random_operand(text, rng)
        if name:
            kwargs[name] = value
        else:
            args.append(value)
    for source in options.inputs:
        more, named = operands_from(source)
        args += more
        kwargs.update(named)
    _check_operands(options.target, fn, args, kwargs)
    return fn, (args, kwargs)


def _check_operands(
    target: str, fn: Callable[..., object], args: Sequence[object], kwargs: Mapping[str, object]
) -> None:
    """UsageError if ``fn`` does not accept these operands."""
    try:
        taken = inspect.signature(getattr(fn, "forward", fn))
    except (TypeError, ValueError):  # a callable without a signature
        return
    try:
        taken.bind(*args, **kwargs)
    except TypeError as error:
        given = f"{len(args) + len(kwargs)} given"
        raise UsageError(f"{target}{taken}: {error}, {given}. Set operands by --shape or --inputs") from None


def load(target: str) -> Any:
    """The object that ``file.py:name`` names."""
    path, colon, name = target.rpartition(":")
    if not colon or not path:
        raise UsageError(f"expected file.py:name or package.module:name, got {target!r}")
    found: Any = _module(path)
    module = found
    for part in name.split("."):
        if not hasattr(found, part):
            known = ", ".join(n for n in vars(module) if not n.startswith("_") and callable(getattr(module, n)))
            raise UsageError(f"{path} has no {name!r}; it has {known}")
        found = getattr(found, part)
    return found


def _module(path: str) -> Any:
    """Import the module in a file, or one by its dotted name, which is first searched in the working folder."""
    if not path.endswith(".py"):
        sys.path.insert(0, "")
        try:
            return importlib.import_module(path)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{path}.".startswith(f"{error.name}."):
                raise
            raise UsageError(f"no module {path}; a file is named with its .py") from None
    if not Path(path).is_file():
        raise UsageError(f"no file {path}")
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(Path(path).resolve().parent))
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def compiled_of(fn: Callable[..., object], threads: int | None = None) -> Compiled:
    """Compile the function, unless it is compiled already."""
    inner = getattr(fn, "_compiled", fn)
    return inner if isinstance(inner, Compiled) else Compiled(fn, threads=threads)


def called(compiled: Compiled) -> Compiled:
    """Call a function that takes no arguments: inspection without arguments covers the calls made so far."""
    compiled()
    return compiled


def check_output(name: str) -> Path:
    """A file to write; UsageError if the folder does not exist, before anything is measured."""
    path = Path(name)
    if not path.absolute().parent.is_dir():
        raise UsageError(f"no folder {path.parent} to write {path.name} to")
    return path


def random_operand(text: str, rng: np.random.Generator) -> tuple[str, Tensor]:
    """``[name=]d0,d1[:type]`` as a name ("" when none) and a tensor."""
    name, _, rest = text.rpartition("=")
    dims, _, type_name = rest.partition(":")
    try:
        shape = tuple(int(d) for d in dims.split(",") if d.strip())
        if min(shape, default=0) < 0:
            raise ValueError("a negative size")
        dtype = dtype_named(type_name or "float32")
    except (ValueError, KeyError):
        raise UsageError(f"--shape {text!r} must have the form [NAME=]D0,D1[:TYPE]") from None
    return name, Tensor._wrap(_random(shape, dtype, rng))


def _random(shape: tuple[int, ...], dtype: DType, rng: np.random.Generator) -> Any:
    if dtype.kind == "float":
        return np.asarray(rng.standard_normal(shape)).astype(dtype.numpy)
    return np.asarray(rng.integers(0, 2 if dtype.kind == "bool" else 10, shape)).astype(dtype.numpy)


def operands_from(source: str) -> Operands:
    """Operands from ``.npz``, ``.npy`` or ``.safetensors``, or from a function in a Python file."""
    if ".py:" in source:
        made = load(source)()
        if isinstance(made, dict):
            return [], made
        return list(made) if isinstance(made, tuple | list) else [made], {}
    if not Path(source).is_file():
        raise UsageError(f"no file {source}")
    try:
        arrays = read_arrays(Path(source))
    except ValueError as error:
        raise UsageError(str(error)) from None
    named = {name: Tensor._wrap(array) for name, array in arrays.items()}
    numbered = sorted((n for n in named if re.fullmatch(r"arr_\d+", n)), key=lambda n: int(n[4:]))
    return [named.pop(n) for n in numbered], dict(named)


__all__: Sequence[str] = [
    "EPILOG", "UsageError", "called", "check_output", "compiled_of", "load", "operands_from", "program",
    "random_operand", "subcommands",
]  # fmt: skip
