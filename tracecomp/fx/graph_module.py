"""GraphModule: a module whose ``forward`` is the code that a graph gives."""

from __future__ import annotations

import copy
import itertools
import linecache
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from tracecomp.eager.tensor import Tensor
from tracecomp.fx.graph import Graph, PythonCode
from tracecomp.fx.node import Node
from tracecomp.fx.tracer import Tracer
from tracecomp.nn.module import Module
from tracecomp.nn.parameter import Parameter

_numbers = itertools.count()


_USER_PRESERVED_ATTRIBUTES_KEY = "_user_preserved_attributes"
"""The key of ``meta`` under which libraries note attributes of the traced module."""


class _CodeOnlyModule(Module):
    """A module with these attributes, for generated code to run in."""

    def __init__(self, body: dict[str, Any]) -> None:
        super().__init__()
        self.__dict__.update(body)


def _compiled(code: PythonCode, name: str) -> Any:
    """The function that ``code`` defines; tracebacks show its lines."""
    file = f"<eval_with_key>.{next(_numbers)}"
    linecache.cache[file] = (len(code.src), None, code.src.splitlines(keepends=True), file)
    space = dict(code.globals)
    exec(compile(code.src, file, "exec"), space)
    return space[name]


class GraphModule(Module):
    """A module of a graph and the attributes of ``root`` (a module or a dictionary) that it names.

    Assigning ``graph``, or ``recompile()`` after changes to it, generates ``forward`` again; ``code`` is its source.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> GraphModule:
        for base in cls.__mro__:  # a separate class, with the ``forward`` of one object
            if base.__qualname__.split(".")[-1] != "GraphModuleImpl":
                found = type("GraphModuleImpl", (base,), {"__module__": base.__module__})
                return super().__new__(found)
        raise AssertionError("a GraphModule has a class")

    def __init__(self, root: Module | dict[str, Any], graph: Graph, class_name: str = "GraphModule") -> None:
        super().__init__()
        type(self).__name__ = class_name
        self.__dict__["_graph"] = None
        if isinstance(root, Module):
            if hasattr(root, "training"):
                self.training = root.training
            for node in graph.nodes:
                if node.op in ("get_attr", "call_module"):
                    _copy_attr(root, self, str(node.target))
        elif isinstance(root, dict):
            for node in graph.nodes:
                if node.op in ("get_attr", "call_module") and node.target not in root:
                    raise RuntimeError(
                        f"Node {node} referenced target {node.target} but that target was not provided in ``root``!"
                    )
            targets = {str(n.target) for n in graph.nodes if n.op in ("get_attr", "call_module")}
            for target in sorted(targets, key=lambda t: t.count(".")):
                _assign_attr(root[target], self, target)
        else:
            raise RuntimeError(f"Unsupported type {root} passed for root!")
        self._create_node_hooks: list[Callable[[Node], None]] = []
        self._erase_node_hooks: list[Callable[[Node], None]] = []
        self.meta: dict[str, Any] = dict(getattr(root, "meta", {})) if isinstance(root, Module) else {}
        self._tracer_cls = graph._tracer_cls
        self.graph = graph

    @property
    def graph(self) -> Graph:
        return self.__dict__["_graph"]  # type: ignore[no-any-return]

    @graph.setter
    def graph(self, g: Graph) -> None:
        if not isinstance(g, Graph):
            raise AssertionError(f"Expected a Graph instance, but got {type(g)}")
        self.__dict__["_graph"] = g
        g.owning_module = self
        self.recompile()

    def recompile(self) -> PythonCode:
        """Generate ``forward`` again from the graph."""
        code = self.graph.python_code("self")
        self.__dict__["_code"] = code.src
        type(self).forward = _compiled(code, self.graph._codegen._func_name)  # type: ignore[method-assign]
        return code

    @property
    def code(self) -> str:
        """The source of ``forward``."""
        if "_code" not in self.__dict__:
            raise RuntimeError("Code has not been generated! Please report a bug to PyTorch")
        return str(self.__dict__["_code"])

    def print_readable(self, print_output: bool = True, **options: Any) -> str:
        """The class as text, with the modules below it that are of this kind."""
        body = self.code.strip("\n").replace("def forward", "def forward", 1)
        text = f"class {type(self).__name__}(torch.nn.Module):\n" + "\n".join(
            f"    {line}" if line else "" for line in body.split("\n")
        )
        if print_output:
            print(text)
        return text

    # ---- submodules

    def add_submodule(self, target: str, m: Module) -> bool:
        """Put ``m`` at the path ``target``, with empty modules above it; False where something else is."""
        *above, name = target.split(".")
        place: Any = self
        for part in above:
            if not hasattr(place, part):
                setattr(place, part, Module())
            place = getattr(place, part)
            if not isinstance(place, Module):
                return False
        place.add_module(name, m)
        return True

    def delete_submodule(self, target: str) -> bool:
        """Remove the module at the path ``target``; False where there is none."""
        *above, name = target.split(".")
        place: Any = self
        for part in above:
            place = getattr(place, part, None)
        if not isinstance(place, Module) or not isinstance(getattr(place, name, None), Module):
            return False
        delattr(place, name)
        return True

    def delete_all_unused_submodules(self) -> None:
        """Remove the modules that no node names, and that contain none that is named."""
        used: set[str] = set()
        for node in self.graph.nodes:
            if node.op in ("call_module", "get_attr"):
                parts = str(node.target).split(".")
                used.update(".".join(parts[: i + 1]) for i in range(len(parts)))
                found = _at(self, str(node.target)) if node.op == "call_module" else None
                if isinstance(found, Module):
                    used.update(f"{node.target}.{name}" for name, _ in found.named_modules() if name)
        for name in [name for name, _ in self.named_modules() if name and name not in used]:
            self.delete_submodule(name)

    # ---- copies, files

    def __deepcopy__(self, memo: dict[int, object]) -> GraphModule:
        base = cast("type[GraphModule]", type(self).__mro__[1])
        made = base.__new__(base)
        memo[id(self)] = made
        own = {k: v for k, v in self.__dict__.items() if k != "_graph"}
        made.__dict__.update(copy.deepcopy(own, memo))
        type(made).__name__ = type(self).__name__
        made.graph = copy.deepcopy(self.graph)
        return made

    def __copy__(self) -> GraphModule:
        made = GraphModule(self, self.graph, type(self).__name__)
        made.graph = copy.deepcopy(self.graph)
        made.meta = dict(self.meta)
        return made

    def __reduce__(self) -> Any:
        code = self.graph.python_code("self")
        named = {name: _importable(value) for name, value in code.globals.items()}
        own = {k: v for k, v in self.__dict__.items() if k not in ("_graph", "_create_node_hooks", "_erase_node_hooks")}
        return rebuild, (own, code.src, named, self.graph._codegen._func_name, type(self).__name__, self._tracer_cls)

    def to_folder(self, folder: str | Path, module_name: str = "FxModule") -> None:
        """Write a package with the class's source and its state."""
        place = Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        sys.modules["tracecomp"].save(self.state_dict(), place / "state_dict.pt")
        body = "\n".join(f"    {line}" if line else "" for line in self.code.strip("\n").split("\n"))
        children = []
        for name, child in self.named_children():
            sys.modules["tracecomp"].save(child, place / f"{name}.pt")
            children.append(f"        self.{name} = torch.load(r'{place / (name + '.pt')}', weights_only=False)")
        for kind, named in (("Parameter", self._parameters), ("buffer", self._buffers)):
            for name, value in named.items():
                made = f"torch.empty({list(value.shape)}, dtype={value.dtype})" if value is not None else "None"
                children.append(
                    f"        self.{name} = torch.nn.Parameter({made})" if kind == "Parameter"
                    else f"        self.register_buffer('{name}', {made})"
                )  # fmt: skip
        text = (
            f"import torch\nfrom torch.nn import *\n\n\nclass {module_name}(torch.nn.Module):\n"
            "    def __init__(self):\n        super().__init__()\n" + "\n".join(children)
            + f"\n        self.load_state_dict(torch.load(r'{place / 'state_dict.pt'}'))\n\n{body}\n"
        )  # fmt: skip
        (place / "module.py").write_text(text)
        (place / "__init__.py").write_text("from .module import *\n")


def _importable(value: object) -> Any:
    """``value`` for a pickle: a module by its name."""
    return ("module", value.__name__) if isinstance(value, type(sys)) else ("value", value)


def rebuild(
    own: Mapping[str, object], source: str, named: dict[str, Any], function: str, class_name: str, tracer_cls: object
) -> GraphModule:
    """A graph module from what a pickle holds: its code is traced again, its submodules are not entered."""
    space = {name: import_module(value) if kind == "module" else value for name, (kind, value) in named.items()}
    loaded = type("_Loaded", (_CodeOnlyModule,), {"forward": _compiled(PythonCode(source, space), function)})
    holder = loaded(own)
    graph = _Retracer().trace(holder)
    graph._tracer_cls = tracer_cls
    made = GraphModule(holder, graph, class_name)
    for name, value in own.items():
        if name not in made.__dict__:
            made.__dict__[name] = value
    return made


class _Retracer(Tracer):
    """Traces generated code, whose modules are not entered."""

    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        return True


def _at(root: object, path: str) -> Any:
    for part in path.split("."):
        root = getattr(root, part, None)
    return root


def _copy_attr(source: Module, target: Module, path: str) -> None:
    """Copy the attribute at ``path`` from ``source`` to ``target``, with empty modules above it."""
    *above, name = path.split(".")
    for part in above:
        child: Any = getattr(source, part)
        if getattr(target, part, None) is child:
            return
        if not hasattr(target, part):
            setattr(target, part, Module())
        source, target = child, getattr(target, part)
    value = getattr(source, name)
    _set(target, name, value)


def _assign_attr(value: object, target: Module, path: str) -> None:
    *above, name = path.split(".")
    for part in above:
        if not hasattr(target, part):
            setattr(target, part, Module())
        target = getattr(target, part)
    _set(target, name, value)


def _set(target: Module, name: str, value: object) -> None:
    """Set an attribute; a tensor that is not a parameter becomes a buffer."""
    if isinstance(value, Tensor) and not isinstance(value, Parameter):
        target.register_buffer(name, value)
    else:
        setattr(target, name, value)
