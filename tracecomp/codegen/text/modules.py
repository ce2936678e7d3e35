"""The LLVM modules of a program: a long one is split between kernels, so that LLVM can compile one while others are
written. Later modules declare and call the kernels and helper functions of earlier ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tracecomp.codegen.text.target import Target

# Functions that other modules may call: those with internal linkage are left out.
_DEFINITION = re.compile(r"^define (?P<signature>(?!internal ).*?(?P<name>@[-\w.]+)\(.*) \{$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ModuleText:
    """Functions, and declared or defined helper functions by name."""

    target: Target
    functions: tuple[str, ...]
    declarations: Mapping[str, str]

    def __str__(self) -> str:
        return "\n".join(
            [
                f'target triple = "{self.target.triple}"',
                f'target datalayout = "{self.target.data_layout}"',
                *self.functions,
                *self.declarations.values(),
                _attributes(self.target.vector_bits),
            ]
        )


def joined(modules: Iterable[ModuleText]) -> ModuleText:
    """Join modules into one with the definitions of all, in their order."""
    modules = list(modules)
    functions = tuple(f for m in modules for f in m.functions)
    texts: dict[str, str] = {}
    # A function that one of the modules defines needs no declaration in the joined one.
    own = defined_in(functions)
    for m in modules:
        for name, text in m.declarations.items():
            if name not in own:
                texts.setdefault(name, text)
    return ModuleText(modules[0].target, functions, texts)


def defined_in(texts: Iterable[str]) -> dict[str, str]:
    """The declarations of functions that other modules may call, of those that ``texts`` define."""
    found = (match for text in texts for match in _DEFINITION.finditer(text))
    return {match["name"]: f"declare {match['signature']}" for match in found}


def _attributes(bits: int) -> str:
    # Without these LLVM splits 512-bit vectors in two on processors where it assumes that to be faster.
    width = f'"prefer-vector-width"="{bits}" "min-legal-vector-width"="{bits}"'
    return (
        f"attributes #0 = {{ nounwind {width} }}\nattributes #1 = {{ nounwind noinline }}\n"
        # ``willreturn memory(none)``: math functions are pure, so equal calls may be merged.
        f"attributes #2 = {{ nounwind willreturn memory(none) {width} }}\n"
        "attributes #3 = { nounwind willreturn noinline memory(none) }\n!0 = !{}\n!1 = !{i32 1}\n"
    )
