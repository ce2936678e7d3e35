"""Code in memory: with LLVM's linker and without it, in later processes, in forked children."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tracecomp.base.errors import CompileError
from tracecomp.codegen.text import native
from tracecomp.runtime import compiler
from tracecomp.runtime.library import Library
from tracecomp_runtime import processor

COUNTING = """
@count = internal global i64 0
@table = private constant [4 x i64] [i64 2, i64 3, i64 5, i64 7], align 32
@where = internal global ptr @table
declare i64 @labs(i64)
declare i64 @twice(i64)
define i64 @counted(i64 %n) {
 %old = load i64, ptr @count
 %new = add i64 %old, 1
 store i64 %new, ptr @count
 %found = load ptr, ptr @where
 %at = getelementptr i64, ptr %found, i64 %n
 %prime = load i64, ptr %at
 %less = sub i64 0, %prime
 %positive = call i64 @labs(i64 %less)
 %double = call i64 @twice(i64 %positive)
 %high = mul i64 %new, 100
 %result = add i64 %high, %double
 ret i64 %result
}
"""
TWICE = "define i64 @twice(i64 %n) {\n %r = add i64 %n, %n\n ret i64 %r\n}\n"
on_x86 = pytest.mark.skipif(processor.identity() is None, reason="LLVM is asked at every start elsewhere")


def objects() -> list[bytes]:
    return [native.compile_object(text, native.host_target()) for text in (COUNTING, TWICE)]


def counted(address: int) -> list[int]:
    function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(address)
    return [function(n) for n in range(4)]


def test_code_linked_here_does_what_llvm_links() -> None:
    """Data that code writes, tables, pointers in data, functions of the C library and of the other object."""
    ours, theirs = Library(objects()), native.Linked(objects(), native.host_target(), {})
    again = Library(objects())
    assert counted(ours.address("counted")) == counted(theirs.address("counted")) == [104, 206, 310, 414]
    assert counted(again.address("counted"))[0] == 104


def test_missing_functions_are_named() -> None:
    with pytest.raises(CompileError, match="no function nothing"):
        Library(objects()).address("nothing")
    text = "declare i64 @tc_not_there()\ndefine i64 @f() {\n %r = call i64 @tc_not_there()\n ret i64 %r\n}\n"
    if native.host_target().is_x86:
        with pytest.raises(CompileError, match="tc_not_there"):
            Library([native.compile_object(text, native.host_target())])


@on_x86
def test_a_name_is_defined_once() -> None:
    """A call of it would go to whichever came last."""
    other = "define i64 @twice(i64 %n) {\n %r = mul i64 %n, 3\n ret i64 %r\n}\n"
    with pytest.raises(CompileError, match="two objects define twice"):
        Library([*objects(), native.compile_object(other, native.host_target())])


def test_a_forked_child_has_data_of_its_own() -> None:
    library = Library(objects())
    address = library.address("counted")
    child = os.fork()
    if not child:
        counted(address)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert counted(address)[0] == 104


CALLS = """
import sys
import tracecomp as torch

torch.manual_seed(0)
x, w, k = torch.randn(8, 16), torch.randn(16), torch.randn(4, 2, 3, 3)
found = [x.exp(), torch.softmax(x, -1), torch.atan2(x, w), x.sum(1), x @ x.T, x.std(), torch.rand(4)]
heavy = ("llvmlite", "tracecomp.passes.pipeline", "tracecomp.codegen.kernels.kernel")
loaded = [name for name in heavy if name in sys.modules]
f = torch.compile(lambda x: (x * 2).tanh().sum(0))
found += [torch.layer_norm(x, (16,), w), torch.conv2d(torch.randn(2, 2, 8, 8), k), *(f(x) for _ in range(3))]
print([t.flatten().tolist() for t in found], file=sys.stderr)
print(loaded, "llvmlite" in sys.modules)
"""


def started(folder: Path) -> tuple[str, str]:
    environment = {**os.environ, "TRACECOMP_CACHE_DIR": str(folder)}
    command = [sys.executable, "-c", CALLS]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, check=True)
    return done.stdout, done.stderr


@on_x86
def test_a_second_process_needs_no_compiler(tmp_path: Path) -> None:
    """Eager calls of many kinds need neither passes nor codegen either; bits are those of the first process."""
    first, second = started(tmp_path), started(tmp_path)
    assert "llvmlite" in first[0] and second[0] == "[] False\n"
    assert first[1] == second[1]


def test_what_is_remembered_of_llvm_is_what_it_says() -> None:
    assert compiler.host_target() == native.host_target()
    assert compiler.compiler_version() == native.compiler_version()


@on_x86
def test_answers_of_other_files_do_not_hold(tmp_path: Path) -> None:
    file = tmp_path / "libllvm.so"
    file.write_bytes(b"code")
    known = compiler._Answers("LLVM", native.host_target(), compiler._states([str(file)]))
    again = compiler._Answers.from_bytes(known.to_bytes())
    assert again == known and again.hold()
    info = file.stat()
    file.write_bytes(b"code!")
    os.utime(file, ns=(info.st_atime_ns, info.st_mtime_ns))
    assert not again.hold()
    file.write_bytes(b"edoc")
    os.utime(file, ns=(info.st_atime_ns, info.st_mtime_ns + 1))
    assert not again.hold()
    file.unlink()
    assert not again.hold()
    assert not compiler._Answers("LLVM", native.host_target(), ()).hold()


@on_x86
def test_another_processor_or_installation_has_answers_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    before, asked = compiler._key_of_answers(), processor.identity()
    assert asked is not None
    for n in range(len(asked)):
        other = (*asked[:n], asked[n] ^ 1, *asked[n + 1 :])
        monkeypatch.setattr(processor, "identity", lambda other=other: other)
        assert compiler._key_of_answers() != before
    monkeypatch.undo()
    monkeypatch.setattr(compiler, "find_spec", lambda name: None)
    assert compiler._key_of_answers() is None
