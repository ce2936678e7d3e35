"""Files made to harm: nothing of the process changes, no code runs, time and memory stay in bounds, errors tell why."""

from __future__ import annotations

import io
import json
import os
import pickle
import random
import struct
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tracecomp as tc
from tracecomp import nn
from tracecomp.eager.tensor import Tensor
from tracecomp.serialization import load, safe_globals, safetensors, save

P = pickle


def glob(module: str, name: str) -> bytes:
    return P.GLOBAL + f"{module}\n{name}\n".encode()


def text(value: str) -> bytes:
    return P.BINUNICODE + struct.pack("<I", len(value.encode())) + value.encode()


def number(value: int) -> bytes:
    return P.BININT + struct.pack("<i", value)


def archive(pickled: bytes, members: dict[str, bytes] | None = None, compression: int = zipfile.ZIP_STORED) -> bytes:
    """A file whose pickle is ``pickled`` and then stops."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", compression) as file:
        file.writestr("a/data.pkl", pickled + P.STOP)
        for name, data in (members or {}).items():
            file.writestr(f"a/{name}", data)
    return made.getvalue()


STORAGE = (
    P.MARK + text("storage") + glob("torch", "FloatStorage") + text("0") + text("cpu") + number(2) + P.TUPLE
    + P.BINPERSID
)  # fmt: skip
REBUILD = glob("torch._utils", "_rebuild_tensor_v2")
SHAPE = P.MARK + number(2) + P.TUPLE
STRIDE = P.MARK + number(1) + P.TUPLE
NO_HOOKS = glob("collections", "OrderedDict") + P.EMPTY_TUPLE + P.REDUCE
ONE_TENSOR = (
    REBUILD + P.MARK + STORAGE + number(0) + SHAPE + STRIDE + P.NEWFALSE + NO_HOOKS + P.TUPLE + P.REDUCE
)  # fmt: skip
DATA = {"data/0": struct.pack("<2f", 1.5, 2.5)}


def read(pickled: bytes, members: dict[str, bytes] | None = None, **how: Any) -> Any:
    return load(io.BytesIO(archive(pickled, DATA if members is None else members)), **how)


def test_the_pieces_of_these_files_are_right() -> None:
    assert read(ONE_TENSOR).tolist() == [1.5, 2.5]


STATE = P.EMPTY_DICT + text("__add__") + P.NONE + P.SETITEM
SLOTS = P.MARK + P.NONE + STATE + P.TUPLE
CHANGES = {
    "Tensor's attributes": glob("torch", "Tensor") + STATE + P.BUILD,
    "Tensor's slots": glob("torch", "Tensor") + SLOTS + P.BUILD,
    "another name of Tensor": glob("torch._tensor", "Tensor") + SLOTS + P.BUILD,
    "Parameter's attributes": glob("torch.nn.parameter", "Parameter") + SLOTS + P.BUILD,
    "OrderedDict's attributes": glob("collections", "OrderedDict") + SLOTS + P.BUILD,
    "Size's attributes": glob("torch", "Size") + SLOTS + P.BUILD,
    "set's attributes": glob("builtins", "set") + SLOTS + P.BUILD,
    "a dtype's attributes": glob("torch", "float32") + SLOTS + P.BUILD,
    "a storage type's attributes": glob("torch", "FloatStorage") + SLOTS + P.BUILD,
    "a function's attributes": REBUILD + SLOTS + P.BUILD,
    "items of a class": glob("torch", "Tensor") + text("x") + P.NONE + P.SETITEM,
    "items of a tensor": ONE_TENSOR + number(0) + number(1) + P.SETITEM,
    "items appended to a class": glob("builtins", "set") + number(1) + P.APPEND,
    "members of a class": glob("builtins", "set") + P.MARK + number(1) + P.ADDITEMS,
    "a tensor's method": ONE_TENSOR + P.EMPTY_DICT + text("backward") + P.NONE + P.SETITEM + P.BUILD,
    "a tensor's memory": ONE_TENSOR + P.EMPTY_DICT + text("_data") + P.NONE + P.SETITEM + P.BUILD,
    "a tensor's memory as a slot": ONE_TENSOR + P.NONE + P.EMPTY_DICT + text("_data") + P.NONE + P.SETITEM + P.TUPLE2
    + P.BUILD,
    "a dictionary's method": NO_HOOKS + P.EMPTY_DICT + text("items") + P.NONE + P.SETITEM + P.BUILD,
    "a dictionary's class": NO_HOOKS + P.EMPTY_DICT + text("__class__") + glob("collections", "Counter") + P.SETITEM
    + P.BUILD,
    "a state that is no dictionary": NO_HOOKS + number(3) + P.BUILD,
    "names that are no text": NO_HOOKS + P.EMPTY_DICT + number(1) + P.NONE + P.SETITEM + P.BUILD,
    "a list's state": P.EMPTY_LIST + STATE + P.BUILD,
    "where a tensor's memory is": ONE_TENSOR + P.EMPTY_DICT + text("__array_interface__") + P.EMPTY_DICT + P.SETITEM
    + P.BUILD,
    "where a dictionary's memory is": NO_HOOKS + P.EMPTY_DICT + text("__array_struct__") + P.NONE + P.SETITEM
    + P.BUILD,
}  # fmt: skip


@pytest.mark.parametrize("what", CHANGES)
def test_a_file_changes_nothing_but_what_it_makes(what: str) -> None:
    before = {kind: dict(vars(kind)) for kind in (Tensor, nn.Parameter, OrderedDict, tc.Size, type(tc.float32))}
    with pytest.raises(pickle.UnpicklingError, match="the file: "):
        read(CHANGES[what])
    assert {kind: dict(vars(kind)) for kind in before} == before
    assert read(ONE_TENSOR).add(1).tolist() == [2.5, 3.5]


CALLS = {
    "a class that is only named": glob("torch", "Tensor") + P.EMPTY_TUPLE + P.REDUCE,
    "a dtype": glob("torch", "float32") + P.EMPTY_TUPLE + P.REDUCE,
    "what a call gave": NO_HOOKS + P.EMPTY_TUPLE + P.REDUCE,
    "new instances": glob("torch", "Tensor") + P.EMPTY_TUPLE + P.NEWOBJ,
    "system": glob("os", "system") + P.MARK + text("touch hit") + P.TUPLE + P.REDUCE,
    "eval": glob("builtins", "eval") + P.MARK + text("1") + P.TUPLE + P.REDUCE,
    "getattr": glob("builtins", "getattr") + P.MARK + text("1") + text("x") + P.TUPLE + P.REDUCE,
    "a name in a name": P.PROTO + b"\4" + text("torch") + text("Tensor.__new__") + P.STACK_GLOBAL,
    "instances by INST": P.MARK + P.INST + b"collections\nOrderedDict\n",
    "instances by OBJ": P.MARK + glob("collections", "OrderedDict") + P.OBJ,
    "extension codes": P.EXT1 + b"\1",
    "another codec": glob("_codecs", "encode") + P.MARK + text("x" * 99) + text("bz2") + P.TUPLE + P.REDUCE,
    "bytes by number": glob("builtins", "bytearray") + P.MARK + P.BININT + b"\xff\xff\xff\x7f" + P.TUPLE + P.REDUCE,
    "a module": glob("tracecomp.nn.linear", "Linear") + P.EMPTY_TUPLE + P.NEWOBJ,
    "any function with a type": glob("torch._tensor", "_rebuild_from_type_v2") + P.MARK + glob("builtins", "set")
    + glob("torch", "Tensor") + P.EMPTY_TUPLE + P.EMPTY_DICT + P.TUPLE + P.REDUCE,
    "any class as a type": glob("torch._tensor", "_rebuild_from_type_v2") + P.MARK + REBUILD
    + glob("builtins", "set") + P.EMPTY_TUPLE + P.EMPTY_DICT + P.TUPLE + P.REDUCE,
}  # fmt: skip


@pytest.mark.parametrize("what", CALLS)
def test_a_file_calls_only_what_makes_tensors(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(pickle.UnpicklingError, match="the file: "):
        read(CALLS[what])
    assert not list(tmp_path.iterdir())


def rebuilt(memory: bytes = STORAGE, offset: int = 0, shape: bytes = SHAPE, stride: bytes = STRIDE) -> bytes:
    return REBUILD + P.MARK + memory + number(offset) + shape + stride + P.NEWFALSE + NO_HOOKS + P.TUPLE + P.REDUCE


def sizes(*values: int) -> bytes:
    return P.MARK + b"".join(map(number, values)) + P.TUPLE


TENSORS = {
    "too large": rebuilt(shape=sizes(3)),
    "too far": rebuilt(offset=1),
    "before its memory": rebuilt(offset=-1),
    "backwards": rebuilt(offset=1, stride=sizes(-1)),
    "too wide": rebuilt(stride=sizes(1 << 30)),
    "of a negative size": rebuilt(shape=sizes(-2)),
    "of other axes": rebuilt(shape=sizes(2, 1)),
    "of too many axes": rebuilt(shape=sizes(*[1] * 80), stride=sizes(*[1] * 80)),
    "of no memory": rebuilt(memory=P.NONE),
    "of a shape of text": rebuilt(shape=text("2")),
    "of a long shape": rebuilt(shape=P.MARK + P.LONG1 + b"\x10" + b"\xff" * 15 + b"\x7f" + P.TUPLE),
}


@pytest.mark.parametrize("what", TENSORS)
def test_tensors_that_do_not_fit_are_refused(what: str) -> None:
    with pytest.raises(pickle.UnpicklingError, match="the file: damaged pickle: REDUCE at byte"):
        read(TENSORS[what])


MEMBERS: dict[str, dict[str, bytes]] = {
    "missing": {},
    "too short": {"data/0": b"1234"},
    "of half an element": {"data/0": b"1234567"},
    "in an unknown byte order": DATA | {"byteorder": b"middle"},
}


@pytest.mark.parametrize("what", MEMBERS)
def test_memory_that_is_not_as_told_is_refused(what: str) -> None:
    with pytest.raises(pickle.UnpicklingError, match="the file: "):
        read(ONE_TENSOR, MEMBERS[what])


def test_two_members_of_one_name_are_refused() -> None:
    with pytest.warns(UserWarning, match="Duplicate name"):
        file = archive(ONE_TENSOR, DATA | {"data.pkl": b"other"})
    with pytest.raises(pickle.UnpicklingError, match="two members of the archive have the same name"):
        load(io.BytesIO(file))


def test_an_allowed_class_may_be_made_and_nothing_else_of_it_changed() -> None:
    with safe_globals([Plain]):
        save({"x": Plain(3)}, file := io.BytesIO())
        assert load(io.BytesIO(file.getvalue()))["x"].value == 3
        with pytest.raises(pickle.UnpicklingError, match="state of an object of type type may not be set"):
            read(glob(__name__, "Plain") + STATE + P.BUILD)
    with pytest.raises(pickle.UnpicklingError, match="Plain was not an allowed global"):
        load(io.BytesIO(file.getvalue()))


class Plain:
    def __init__(self, value: int) -> None:
        self.value = value


def deep(levels: int, level: bytes, inside: bytes) -> bytes:
    return inside + level * levels


@pytest.mark.sampled(2)
@pytest.mark.parametrize("levels", [300, 30_000])
@pytest.mark.parametrize("level", [P.TUPLE1, P.NONE + P.TUPLE2])
@pytest.mark.parametrize("use", ["value", "key", "member"])
def test_deep_nesting_is_an_error(levels: int, level: bytes, use: str) -> None:
    nested = deep(levels, level, P.NONE)
    pickled = {
        "value": nested, "key": P.EMPTY_DICT + nested + P.NONE + P.SETITEM,
        "member": P.EMPTY_SET + P.MARK + nested + P.ADDITEMS,
    }[use]  # fmt: skip
    with pytest.raises(pickle.UnpicklingError, match=r"levels deep|more work or memory"):
        read(pickled)


def test_deep_lists_and_dictionaries_are_an_error() -> None:
    for opened, closed in ((P.EMPTY_LIST, P.APPEND), (P.EMPTY_DICT + P.NONE, P.SETITEM)):
        with pytest.raises(pickle.UnpicklingError, match="levels deep"):
            read(opened * 30_000 + P.NONE + closed * 30_000)


def test_the_longest_way_down_counts() -> None:
    """A list of all levels, each of which holds its predecessor: every object is one step away, the path is long."""
    levels = b"".join(P.BINPUT + bytes([n % 256]) + P.BINGET + bytes([n % 256]) + P.TUPLE1 for n in range(1000))
    with pytest.raises(pickle.UnpicklingError, match="levels deep"):
        read(P.EMPTY_LIST + P.MARK + P.NONE + levels + P.APPENDS)


def test_usual_nesting_and_rings_are_read() -> None:
    assert read(deep(200, P.TUPLE1, P.NONE)) is not None
    ring = read(P.EMPTY_LIST + P.BINPUT + b"\0" + P.BINGET + b"\0" + P.APPEND)
    assert ring[0] is ring


DOUBLED = P.DUP + P.TUPLE2
MEMO = "a place in the memo beyond memory"
BOMBS: dict[str, Callable[[], bytes]] = {
    "zeros in the memory": lambda: archive(ONE_TENSOR, {"data/0": bytes(1 << 25)}, zipfile.ZIP_DEFLATED),
    "a compressed pickle": lambda: archive(P.EMPTY_SET * (1 << 24), {}, zipfile.ZIP_DEFLATED),
    "a key with 2**60 parts": lambda: archive(P.EMPTY_DICT + P.NONE + DOUBLED * 60 + P.NONE + P.SETITEM),
    "a member with 2**60 parts": lambda: archive(P.EMPTY_SET + P.MARK + P.NONE + DOUBLED * 60 + P.ADDITEMS),
    "a wide key again and again": lambda: archive(
        P.MARK + P.NONE * 100_000 + P.TUPLE + P.BINPUT + b"\0" + P.EMPTY_DICT
        + (P.BINGET + b"\0" + P.NONE + P.SETITEM) * 200_000
    ),
    "a long text encoded again and again": lambda: archive(
        text("x" * 500_000) + text("latin1") + P.TUPLE2 + P.BINPUT + b"\0" + P.MARK
        + (glob("_codecs", "encode") + P.BINGET + b"\0" + P.REDUCE) * 20_000 + P.LIST
    ),
    "a long list copied again and again": lambda: archive(
        P.MARK + b"".join(map(number, range(100_000))) + P.LIST + P.TUPLE1 + P.BINPUT + b"\0" + P.MARK
        + (glob("builtins", "set") + P.BINGET + b"\0" + P.REDUCE) * 20_000 + P.LIST
    ),
    "an int of a million digits as a key again and again": lambda: archive(
        P.LONG4 + struct.pack("<i", 500_000) + b"\x7f" * 500_000 + P.BINPUT + b"\0" + P.EMPTY_DICT
        + (P.BINGET + b"\0" + P.NONE + P.SETITEM) * 100_000
    ),
    "ints of one hash": lambda: archive(
        P.EMPTY_DICT + P.MARK
        + b"".join(
            P.LONG1 + b"\x0a" + (k * ((1 << 61) - 1)).to_bytes(10, "little") + P.NONE for k in range(2, 60_000)
        ) + P.SETITEMS
    ),
    "text of a number with a million digits": lambda: archive(P.LONG + b"9" * 1_000_000 + b"L\n"),
    "a length beyond the file": lambda: archive(P.BINBYTES8 + b"\xff" * 7 + b"\x7f"),
    MEMO: lambda: archive(P.NONE + P.LONG_BINPUT + b"\xff\xff\xff\x7f"),
    "memory larger than the file": lambda: grown(archive(ONE_TENSOR, DATA)),
}  # fmt: skip


def grown(data: bytes) -> bytes:
    """``data`` whose directory says that a member has four gigabytes."""
    at = data.index(b"PK\1\2", data.index(b"PK\1\2") + 1)
    return data[: at + 20] + b"\xfe\xff\xff\xff" * 2 + data[at + 28 :]


UNEXPLAINED_SIZE, UNEXPLAINED_WORK = "too large for the size of the archive", "too much work or memory for its size"
REFUSALS = {
    "zeros in the memory": UNEXPLAINED_SIZE,
    "a compressed pickle": UNEXPLAINED_SIZE,
    "a key with 2**60 parts": UNEXPLAINED_WORK,
    "a member with 2**60 parts": UNEXPLAINED_WORK,
    "a wide key again and again": UNEXPLAINED_WORK,
    "a long text encoded again and again": UNEXPLAINED_WORK,
    "a long list copied again and again": UNEXPLAINED_WORK,
    "an int of a million digits as a key again and again": UNEXPLAINED_WORK,
    "ints of one hash": "have the same hash",
    "text of a number with a million digits": "1000000 digits",
    "a length beyond the file": "bytes in a bytes8, but only",
    "memory larger than the file": UNEXPLAINED_SIZE,
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("what", REFUSALS)
def test_bombs_are_refused_before_they_go_off(what: str) -> None:
    """By the rule that bounds their memory and time, which ``python -m tests.fuzz.faults bombs 3`` measures."""
    with pytest.raises(pickle.UnpicklingError, match=REFUSALS[what]):
        load(io.BytesIO(BOMBS[what]()))


def test_the_memo_has_no_room_for_what_is_not_put_there() -> None:
    assert BOMBS.keys() - REFUSALS.keys() == {MEMO}
    assert load(io.BytesIO(BOMBS[MEMO]())) is None


def example() -> bytes:
    """A checkpoint with a bit of everything, the same at each call."""
    tc.manual_seed(0)
    net = nn.Linear(3, 2)
    made = {
        "model": net.state_dict(), "whole": net.weight, "shape": tc.Size([2, 3]), "dtype": tc.float64, "half": b"\xff",
        "numbers": [1, -5, 1 << 40, 1 << 80, 2.5, True, None, complex(1, 2)], "text": "ü", ("a", 1): {1, 2}, "t": (1,),
    }  # fmt: skip
    save(made, file := io.BytesIO())
    return file.getvalue()


def mutated(data: bytes, dice: random.Random) -> bytes:
    """``data`` with one to three small changes."""
    changed = bytearray(data)
    for _ in range(dice.choice((1, 1, 2, 3))):
        at, kind = dice.randrange(len(changed)), dice.randrange(5)
        if kind <= 1:
            changed[at] ^= 1 << dice.randrange(8)
        elif kind == 2:
            changed[at] = dice.randrange(256)
        elif kind == 3:
            del changed[at : at + dice.randrange(1, 5)]
        else:
            changed[at:at] = dice.randbytes(dice.randrange(1, 5))
    return bytes(changed)


def fuzz_pickles(count: int, seed: int) -> int:
    """Load ``count`` damaged pickles in whole archives; how many were refused. Anything undocumented is raised."""
    with zipfile.ZipFile(io.BytesIO(example())) as file:
        contents = {name.partition("/")[2]: file.read(name) for name in file.namelist()}
    pickled, dice, refused = contents.pop("data.pkl")[:-1], random.Random(seed), 0
    for _ in range(count):
        refused += is_refused(archive(mutated(pickled, dice), contents), "the file: ")
    return refused


def fuzz_archives(count: int, seed: int) -> int:
    """The same with damaged archives."""
    good, dice = example(), random.Random(seed)
    return sum(is_refused(mutated(good, dice), "the file: ") for _ in range(count))


def is_refused(data: bytes, place: str) -> bool:
    try:
        load(io.BytesIO(data))
    except (pickle.UnpicklingError, RuntimeError) as error:
        assert str(error).startswith(f"load: {place}") and len(str(error)) > 25, error
        return True
    return False


def fuzz_safetensors(count: int, seed: int) -> int:
    """The same with safetensors."""
    good = safetensors.save({"a": tc.arange(6.0).reshape(2, 3), "b": tc.tensor(True), "c": tc.empty(0, 4)}, {"x": "y"})
    dice, refused = random.Random(seed), 0
    for _ in range(count):
        try:
            safetensors.load(mutated(good[: dice.choice((200, len(good)))], dice))
        except ValueError as error:
            assert str(error).startswith("safetensors: ")
            refused += 1
    return refused


def test_damaged_pickles_archives_and_safetensors_give_the_documented_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = dict(vars(Tensor))
    assert fuzz_pickles(1000, 1) > 300
    assert fuzz_archives(1000, 2) > 300
    assert fuzz_safetensors(1500, 3) > 1000
    assert dict(vars(Tensor)) == before and not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "header",
    [
        [], 1, None, "x", {"a": None}, {"a": []}, {"a": {}}, {"a": {"dtype": "F32"}},
        {"a": {"dtype": 1, "shape": [1], "data_offsets": [0, 4]}},
        {"a": {"dtype": "F32", "shape": 1, "data_offsets": [0, 4]}},
        {"a": {"dtype": "F32", "shape": ["1"], "data_offsets": [0, 4]}},
        {"a": {"dtype": "F32", "shape": [-1, -1], "data_offsets": [0, 4]}},
        {"a": {"dtype": "F32", "shape": [1.0], "data_offsets": [0, 4]}},
        {"a": {"dtype": "F32", "shape": [1], "data_offsets": [0]}},
        {"a": {"dtype": "F32", "shape": [1], "data_offsets": ["0", "4"]}},
        {"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]}},
        {"a": {"dtype": "F32", "shape": [1], "data_offsets": [-4, 0]}},
        {"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 1 << 70]}},
        {"a": {"dtype": "F32", "shape": [1 << 62, 4], "data_offsets": [0, 0]}},
        {"a": {"dtype": "F32", "shape": [1] * 80, "data_offsets": [0, 4]}},
        {"a": {"dtype": "X", "shape": [1], "data_offsets": [0, 4]}},
        {"a": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}},  # 4 bytes belong to no tensor
        {"a": {"dtype": "U8", "shape": [2], "data_offsets": [2, 4]}},
        {n: {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]} for n in "ab"},
        {"__metadata__": 1, "a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}},
        {"__metadata__": {"x": 1}, "a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}},
    ],
)  # fmt: skip
def test_malformed_headers_of_safetensors_are_value_errors(header: Any, tmp_path: Path) -> None:
    written = json.dumps(header).encode()
    (tmp_path / "x").write_bytes(len(written).to_bytes(8, "little") + written + b"1234")
    with pytest.raises(ValueError, match="x: safetensors: "):
        safetensors.load_file(tmp_path / "x")


@pytest.mark.parametrize("written", [b"[" * 200_000, b'{"a":1,"a":2}', b"\xff\xfe", b"9" * 10_000, b"{" * 5])
def test_headers_that_are_no_json_are_value_errors(written: bytes) -> None:
    with pytest.raises(ValueError, match="safetensors: "):
        safetensors.load(len(written).to_bytes(8, "little") + written)


def test_an_error_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "weights.pt"
    data = bytearray(example())
    data[data.index(b"data/0") + 20] ^= 1
    path.write_bytes(data)
    with pytest.raises(pickle.UnpicklingError, match=r"weights\.pt: .*CRC"):
        load(path)


def test_a_pipe_cannot_be_loaded() -> None:
    reading, writing = os.pipe()
    os.close(writing)
    with os.fdopen(reading, "rb") as file, pytest.raises(io.UnsupportedOperation, match="must be seekable"):
        load(file)


def test_what_torch_saves_of_python_attributes_is_read() -> None:
    torch = pytest.importorskip("torch")
    named = torch.arange(3.0)
    named.label = "x"
    parameter = torch.nn.Parameter(torch.ones(2))
    parameter.decay = 0.5
    torch.save([named, parameter, torch.Size([2]), bytearray(b"ab"), torch.strided], file := io.BytesIO())
    found = load(io.BytesIO(file.getvalue()))
    assert found[0].label == "x" and found[1].decay == 0.5 and isinstance(found[1], nn.Parameter)
    assert found[3] == bytearray(b"ab") and found[4] is tc.strided and np.array_equal(found[0].numpy(), [0, 1, 2])
