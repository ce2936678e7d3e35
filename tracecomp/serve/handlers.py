"""Handlers in TorchServe's style: Python code of an archive that turns the body of a request into that of an answer.

Used by the worker process, and only where the server allows code.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO, Protocol, TypeAlias

from tracecomp import set_num_threads
from tracecomp.base.errors import TracecompError
from tracecomp.serve.archive import unpack
from tracecomp.serve.errors import InvalidRequest, ModelFailed, ServeError, Unavailable
from tracecomp.serve.settings import Settings
from tracecomp.serve.signature import Signature, TensorSpec
from tracecomp.serve.tensors import TEXT, TensorData, of_texts

PLATFORM = "torchserve_handler"
SUFFIX = ".mar"
_STEPS = ("preprocess", "inference", "postprocess")
_JSON, _TEXT, _BYTES = "application/json", "text/plain", "application/octet-stream"
_TENSORS = [TensorSpec(name, TEXT, (1,)) for name in ("body", "media_type")]
Value: TypeAlias = Any
"""A handler's input or result."""
Handle = Callable[[Sequence[Mapping[str, Value]], "Context"], Sequence[Value] | Generator[Value, None, None]]


@dataclass(frozen=True)
class Context:
    """Facts that a handler reads: the manifest, and TorchServe's ``system_properties``."""

    model_name: str
    manifest: Mapping[str, Any]
    system_properties: Mapping[str, Any]


class HandlerModel:
    """A loaded handler that answers requests, each alone: no rule says how it treats a batch."""

    def __init__(self, path: Path, settings: Settings, folder: Path) -> None:
        if settings.threads:
            set_num_threads(settings.threads)
        model = unpack(path, folder)
        properties = {"model_dir": str(folder), "gpu_id": None, "batch_size": 1, "server_name": "tracecomp"}
        self._context = Context(str(model.get("modelName", path.stem)), {"model": model}, properties)
        self._handle = _handle(path, folder, model["handler"], self._context)
        self.signature = Signature(_TENSORS, _TENSORS, PLATFORM, 0, "handlers run alone")

    def run(self, inputs: Sequence[TensorData], wanted: Sequence[str]) -> list[TensorData]:
        """The answer's body and media type. ServeError for a failed run. The parts of a generator are joined."""
        parts = [*self._results(inputs)]
        body, media_type = parts[0] if len(parts) == 1 else (b"".join(part for part, _ in parts), _media_type(parts))
        return [t for t in as_tensors(body, media_type) if not wanted or t.name in wanted]

    def stream(self, inputs: Sequence[TensorData], wanted: Sequence[str]) -> Iterator[list[TensorData]]:
        """An answer for each value of a handler's generator, or the only one of another handler."""
        for answer in self._results(inputs):
            yield [t for t in as_tensors(*answer) if not wanted or t.name in wanted]

    def _results(self, inputs: Sequence[TensorData]) -> Iterator[tuple[bytes, str]]:
        body, media_type = (tensor.texts()[0] for tensor in inputs)
        try:
            results = self._handle([_row(body, media_type.decode(errors="replace"))], self._context)
            if isinstance(results, Generator):
                yield from map(_encoded, results)
                return
            if not isinstance(results, list | tuple) or len(results) != 1:
                raise ModelFailed("the handler must return a list with one result for each request, or a generator")
            yield _encoded(results[0])
        except ServeError:
            raise
        except MemoryError:
            raise Unavailable("the model ran out of memory") from None
        except Exception as error:  # a handler may raise anything
            raise ModelFailed(f"the handler failed: {type(error).__name__}: {error}") from error


def as_tensors(body: bytes | memoryview, media_type: str) -> list[TensorData]:
    """The body of a request or an answer, and its media type, as tensors of one byte string each."""
    return [of_texts("body", (1,), [bytes(body)]), of_texts("media_type", (1,), [media_type.encode()])]


def _media_type(parts: Sequence[tuple[bytes, str]]) -> str:
    return _TEXT if {kind for _, kind in parts} == {_TEXT} else _BYTES


def _parsed(body: bytes) -> Value:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise InvalidRequest("the body is not JSON, as its Content-Type says") from None


def _row(body: bytes, media_type: str) -> Mapping[str, Value]:
    """The element of ``data``: fields of a form by name, or the body, parsed if it is JSON."""
    match media_type.partition(";")[0].strip().lower():
        case "application/json":
            return {"body": _parsed(body)}
        case "multipart/form-data":
            return _fields(body, media_type)
    return {"body": body}


def _fields(body: bytes, media_type: str) -> Mapping[str, bytes]:
    """The fields and files of a form. The last of several with one name counts."""
    multipart = import_module("python_multipart.multipart")
    found: dict[str, bytes] = {}

    def add(field: _Field) -> None:
        found[field.field_name.decode(errors="replace")] = field.value or b""

    def add_file(file: _File) -> None:
        file.file_object.seek(0)
        found[file.field_name.decode(errors="replace")] = file.file_object.read()

    headers, limits = {"Content-Type": media_type.encode()}, {"MAX_MEMORY_FILE_SIZE": len(body)}
    try:
        parser = multipart.create_form_parser(headers, add, add_file, limits)
        parser.write(body)
        parser.finalize()
    except multipart.FormParserError as error:
        raise InvalidRequest(f"the body is not a form: {error}") from None
    if parser.parser.state != multipart.MultipartState.END:
        raise InvalidRequest("the body is not a form: its end is missing")
    return found


class _Field(Protocol):
    """A field of a form, as python_multipart gives it."""

    field_name: bytes
    value: bytes | None


class _File(Protocol):
    """A file of a form."""

    field_name: bytes
    file_object: BinaryIO


def _encoded(result: Value) -> tuple[bytes, str]:
    if isinstance(result, bytes | bytearray):
        return bytes(result), _BYTES
    if isinstance(result, str):
        return result.encode(), _TEXT
    return json.dumps(result, allow_nan=False).encode(), _JSON


def _handle(path: Path, folder: Path, named: str, context: Context) -> Handle:
    """The function of the archive that answers requests: that of the module, or the steps of its only class."""
    file, _, function = named.partition(":")
    module = _module(path, folder, file)
    entry = getattr(module, function or "handle", None)
    if function and entry is None:
        raise TracecompError(f"{path.name}: {file} has no function {function!r}")
    if entry is not None:
        entry(None, context)  # TorchServe's signal to load the model
        found: Handle = entry
        return found
    classes = [c for c in vars(module).values() if isinstance(c, type) and c.__module__ == module.__name__
               and hasattr(c, "initialize")]  # fmt: skip
    if len(classes) != 1:
        raise TracecompError(f"{path.name}: {file} must have a function 'handle' or one class with 'initialize'")
    service: Any = classes[0]()
    service.initialize(context)
    if hasattr(service, "handle"):
        found = service.handle
        return found
    if missing := [step for step in _STEPS if not hasattr(service, step)]:
        raise TracecompError(f"{path.name}: class {classes[0].__name__} has no {missing[0]!r}")

    def steps(data: Sequence[Mapping[str, Value]], _: Context) -> Sequence[Value]:
        results: Sequence[Value] = service.postprocess(service.inference(service.preprocess(data)))
        return results

    return steps


def _module(path: Path, folder: Path, file: str) -> ModuleType:
    target = (folder / file).with_suffix(".py")
    spec = spec_from_file_location(target.stem, target) if target.is_file() and ".." not in file else None
    if spec is None or spec.loader is None or not target.is_relative_to(folder):
        raise TracecompError(f"{path.name} has no handler {file!r}")
    if target.stem in sys.modules:
        raise TracecompError(f"{path.name}: rename {target.name}; a loaded module has this name")
    sys.path.insert(0, str(folder))  # further modules of the archive
    module = sys.modules[target.stem] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
