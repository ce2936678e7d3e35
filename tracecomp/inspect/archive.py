"""An archive that reproduces a difference on another machine: the graph, optional inputs, and a script of a few
lines."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from tracecomp.base.atomic import write_file
from tracecomp.base.zip_archive import zip_archive
from tracecomp.ir.graph import Graph
from tracecomp.ir.printer import print_graph

Array = np.ndarray[Any, Any]

_SCRIPT = '''\
"""Show the difference that report.txt describes: the graph by the interpreter, and as machine code.

The good side alone: python -m tracecomp run graph.ir --way interpret
The bad side alone:  python -m tracecomp run graph.ir           (both with --inputs inputs.npz where that is there)
"""

from pathlib import Path

from tracecomp.compiled.differences import difference
from tracecomp.inspect.dumps import arrays_for, read_dump, run_graph, sample_inputs

here = Path(__file__).parent
graph, inputs = read_dump(here / "graph.ir"), here / "inputs.npz"
names = [i.name for i in graph.inputs if i.role != "constant"]
arrays = arrays_for(names, [inputs]) if inputs.exists() else sample_inputs(graph)
sides = run_graph(graph, arrays, "interpret"), run_graph(graph, arrays, "native")
for output, good, bad in zip(graph.outputs, *sides):
    print(f"{output.role} {output.name} {output.value.type}: {difference(bad, good)}")
'''


def write_archive(path: str | Path, report: str, graph: Graph, arrays: Sequence[Array], inputs: bool) -> None:
    """Write the archive; ``inputs`` adds the arrays."""
    write_file(path, lambda file: _fill(file, report, graph, arrays, inputs))


def _fill(file: BinaryIO, report: str, graph: Graph, arrays: Sequence[Array], inputs: bool) -> None:
    with zip_archive(file, zipfile.ZIP_DEFLATED) as archive:

        def add(name: str, data: str | bytes) -> None:
            archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)

        add("report.txt", report + "\n")
        add("graph.ir", print_graph(graph, comments=True))
        add("reproduce.py", _SCRIPT)
        if inputs:
            data = io.BytesIO()
            np.savez(data, *arrays)
            add("inputs.npz", data.getvalue())


__all__ = ["write_archive"]
