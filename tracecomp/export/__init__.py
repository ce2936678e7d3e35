"""``torch.export``: a module as one graph of operators, without its Python, that can be inspected, changed and saved.

The program is captured by running it, like compiled functions (``docs/export.md``).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, BinaryIO

from tracecomp._dynamo.exc import UserError, UserErrorType
from tracecomp.base.user_warnings import warn_user
from tracecomp.export import files
from tracecomp.export.dynamic_shapes import AdditionalInputs, Constraint, Dim, ShapesCollection, dims
from tracecomp.export.exported_program import (
    ExportedProgram,
    ModuleCallEntry,
    ModuleCallSignature,
    default_decompositions,
    exported,
)
from tracecomp.export.graph_signature import ExportBackwardSignature, ExportGraphSignature
from tracecomp.nn.module import Module
from tracecomp.utils import _pytree

__all__ = [
    "AdditionalInputs", "Constraint", "Dim", "ExportBackwardSignature", "ExportGraphSignature", "ExportedProgram",
    "ModuleCallEntry", "ModuleCallSignature", "ShapesCollection", "default_decompositions", "dims", "draft_export",
    "export", "load", "register_dataclass", "save",
]  # fmt: skip


def export(
    mod: Module, args: tuple[object, ...], kwargs: Mapping[str, object] | None = None, *, dynamic_shapes: object = None,
    strict: bool = False, preserve_module_call_signature: tuple[str, ...] = (),
    prefer_deferred_runtime_asserts_over_guards: bool = False,
) -> ExportedProgram:  # fmt: skip
    """Export ``mod``, as it runs on these arguments, as a graph that is valid for other values of their tensors.

    Sizes are those of the arguments, except the dynamic ones of ``dynamic_shapes``: by name of the argument or in
    order, ``{0: Dim("batch")}`` or ``(Dim("batch"), None)`` for a tensor. Arguments other than tensors are constants.
    There is one kind of capture, so ``strict`` and the options after it have no effect.

    ValueError unless ``mod`` is a module. UserError if the arguments are not a tuple or ``dynamic_shapes`` has another
    structure. UserError also if the program needs a concrete size, if control flow depends on values of tensors, or if
    Python objects keep tensors.

    Example:
        >>> import tracecomp as torch
        >>> from tracecomp.export import Dim, export
        >>> model = torch.nn.Linear(3, 2)
        >>> program = export(model, (torch.ones(4, 3),), dynamic_shapes=({0: Dim("batch")},))
        >>> program.module()(torch.ones(7, 3)).shape
        torch.Size([7, 2])
        >>> [str(spec) for spec in program.graph_signature.input_specs]
        ["p_weight: PARAMETER target='weight'", "p_bias: PARAMETER target='bias'", 'input_1: USER_INPUT']
    """
    if not isinstance(mod, Module):
        raise ValueError(f"Expected `mod` to be an instance of `torch.nn.Module`, got {type(mod)}.")
    if not isinstance(args, tuple):
        raise UserError(
            UserErrorType.INVALID_INPUT,
            f"Expecting `args` to be a tuple of example positional inputs, got {type(args)}",
        )
    given = dict(kwargs or {})
    verify = None
    if isinstance(dynamic_shapes, ShapesCollection | AdditionalInputs):
        verify = dynamic_shapes if isinstance(dynamic_shapes, AdditionalInputs) else None
        dynamic_shapes = dynamic_shapes.dynamic_shapes(mod, args, given)
    program = exported(mod, args, given, dynamic_shapes, {})
    if verify is not None:
        verify.verify(program)
    return program


def draft_export(
    mod: Module, args: tuple[object, ...], kwargs: Mapping[str, object] | None = None, *, dynamic_shapes: object = None,
    strict: bool = False, preserve_module_call_signature: tuple[str, ...] = (),
) -> ExportedProgram:  # fmt: skip
    """As ``export``; sizes that the program needs to know are those of the example, and a warning names the first."""
    try:
        return export(mod, args, kwargs, dynamic_shapes=dynamic_shapes)
    except UserError as error:
        if error.error_type is not UserErrorType.CONSTRAINT_VIOLATION:
            raise
        warn_user(
            f"draft_export(): {str(error).rstrip('.')}",
            "The exported program serves the example's size only",
            "Leave this size out of dynamic_shapes, or change the program as the message says",
        )
        return export(mod, args, kwargs, dynamic_shapes=_left_to_program(dynamic_shapes))


def _left_to_program(told: object) -> Any:
    """``dynamic_shapes`` with sizes that the program may fix."""
    if isinstance(told, Mapping):
        return {k: _left_to_program(v) for k, v in told.items()}
    if isinstance(told, tuple | list):
        return [_left_to_program(v) for v in told]
    return Dim.AUTO if isinstance(told, Dim) or told is Dim.DYNAMIC else told


def save(
    ep: ExportedProgram, f: str | os.PathLike[str] | BinaryIO, *, extra_files: Mapping[str, str | bytes] | None = None,
    opset_version: Mapping[str, int] | None = None, pickle_protocol: int = 2,
) -> None:  # fmt: skip
    """Write a program with its state to a path or open file, for ``load``, together with named ``extra_files``.

    TypeError unless it is a program. The file is a program file (``docs/program-files.md``): without code.
    """
    if not isinstance(ep, ExportedProgram):
        raise TypeError(
            f"The 'ep' parameter must be an instance of 'ExportedProgram', got '{type(ep).__name__}' instead."
        )
    files.save(ep, f, extra_files or {})


def load(
    f: str | os.PathLike[str] | BinaryIO, *, extra_files: dict[str, Any] | None = None,
    expected_opset_version: Mapping[str, int] | None = None,
) -> ExportedProgram:  # fmt: skip
    """Load the program that ``save`` wrote to a path or file, which may be untrusted.

    ``extra_files`` receives texts for the names in it. ProgramError describes an invalid file.
    """
    return files.load(f, extra_files)


def register_dataclass(cls: type[Any], *, serialized_type_name: str | None = None) -> None:
    """Allow a dataclass in arguments and results of programs."""
    if not hasattr(cls, "__dataclass_fields__"):
        raise AssertionError(f"Only dataclasses can be registered with this function: {cls}")
    _pytree.register_dataclass(cls)
