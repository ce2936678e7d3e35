"""Expressions of a kernel, evaluated for each element of the surrounding tile and vector loops."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product

from tracecomp.base.errors import failure_word
from tracecomp.codegen.kernels import convert, operations
from tracecomp.codegen.kernels.accumulate import State, zero
from tracecomp.codegen.kernels.address import Indexer, Offset, Position, load_access, tail_mask
from tracecomp.codegen.kernels.checked import NOT_SHADOWED, Region
from tracecomp.codegen.kernels.squares import SHUFFLE_BYTES
from tracecomp.codegen.kernels.transpose import columns, contiguous_tile, square
from tracecomp.codegen.text.emitter import Emitter, Value, next_power_of_two
from tracecomp.ir.index import Computed, Index, Var
from tracecomp.ir.loops import LINE, Buffer, Call, Const, Expr, IndexValue, Load, Read, Stmt, ToLine
from tracecomp.ir.types import DType, bfloat16, float16

Point = tuple[int, ...]
_SHUFFLED_STRIDES = (-4, -3, -2, -1, 2, 3, 4)
"""Strides at which lanes share lines: all memory between them is loaded and shuffled."""
# Most bytes between the first and last lane for which lanes are loaded one by one; beyond it, a gather instruction
# waits less. 256 KB fit a second cache.
_NEAR = 1 << 18


@dataclass(slots=True)
class Binding:
    """A name's values: one for every element of ``over``; with ``expr`` they are computed when read."""

    over: tuple[Var, ...]
    values: dict[Point, Value]
    expr: Expr | None = None


@dataclass(slots=True)
class Stores:
    """Alias groups written in each open block, innermost last; versions change whenever a group is written."""

    open: list[frozenset[str]] = field(default_factory=lambda: [frozenset()])
    version: dict[str, int] = field(default_factory=dict)

    def bump(self, groups: frozenset[str]) -> None:
        for group in groups:
            self.version[group] = self.version.get(group, 0) + 1


class Elements:
    """The context of a statement: enclosing loops, meanings of names, and values of expressions.

    ``groups`` maps a parameter to its alias group. ``spmd`` are the open tile and vector loops, ``vector`` the vector
    one, ``point`` the element (or chunk of elements) that is being evaluated. ``streaming``: the buffers of
    non-temporal stores begin at a line.
    """

    def __init__(
        self, e: Emitter, width: int, bases: dict[str, Value], groups: dict[str, str], streaming: bool = False
    ) -> None:
        self.e = e
        self.width = width
        self.streaming = streaming
        self.bases = bases
        self.tags: dict[str, Value] = {}
        self.groups = groups
        self.indexer = Indexer(e, self._position, self.eval)
        self.scalars: dict[Var, Value | int] = {}
        self.spmd: list[Var] = []
        self.vector: Var | None = None
        self.point: dict[Var, int] = {}
        self.bindings: dict[str, Binding] = {}
        self.states: dict[str, State] = {}
        self.stores = Stores()
        self._memo: dict[tuple[int, ...], Value] = {}
        self._over: dict[int, tuple[Expr, frozenset[Var]]] = {}

    def body(self, body: tuple[Stmt, ...]) -> None:
        """Emit statements."""
        raise NotImplementedError

    def forget(self) -> None:
        """Forget remembered values: they are valid within one statement only, as the next one may see other memory."""
        self._memo.clear()
        self._over.clear()

    def points(self, over: tuple[Var, ...]) -> Iterator[Point]:
        """Every element of ``over`` in loop order, set as the current one."""
        # An accumulator or a binding exists once for each element of the variables that it changes with.
        ranges = [range(self.chunks(v)) for v in over]
        for point in product(*ranges):
            self.point.update(zip(over, point, strict=True))
            yield point

    def lanes_of(self, var: Var) -> int:
        """Number of SIMD lanes into which the vector variable is split."""
        # A power of two: LLVM's masked operations and shuffles are best there.
        return min(self.width, next_power_of_two(var.extent))

    def chunks(self, var: Var) -> int:
        return -(-var.extent // self.lanes_of(var)) if var == self.vector else var.extent

    def active(self) -> Value | None:
        """The lanes of the current chunk that exist; None when all do."""
        return tail_mask(self.e, self.lanes_of(self.vector), self.active_lanes()) if self.vector else None

    def active_lanes(self) -> int:
        """How many lanes of the current chunk exist."""
        assert self.vector is not None
        # In the last chunk some lanes do not exist.
        lanes = self.lanes_of(self.vector)
        return min(lanes, self.vector.extent - self.point[self.vector] * lanes)

    def over(self, expr: Expr) -> frozenset[Var]:
        """The surrounding tile and vector variables on which ``expr`` depends."""
        known = self._over.get(id(expr))
        if known is not None:
            return known[1]
        match expr:
            case Const() | ToLine():
                result: frozenset[Var] = frozenset()
            case IndexValue():
                result = self.over_index(expr.index)
            case Load():
                result = self.over_index(expr.offset) | (self.over(expr.where) if expr.where else frozenset())
            case Read():
                result = frozenset(self._bound_over(expr.name))
            case Call():
                result = frozenset().union(*map(self.over, expr.args))
        # With the expression itself: while it is referenced, no other object has its identity.
        self._over[id(expr)] = expr, result
        return result

    def over_index(self, index: Index) -> frozenset[Var]:
        result: frozenset[Var] = frozenset()
        for atom, _ in index.terms:
            if isinstance(atom, Var):
                # Variables other than tile and vector loops have one value for all elements.
                result |= {atom} if atom in self.spmd else frozenset()
            elif isinstance(atom, Computed):
                result |= self.over(atom.expr)
            else:
                result |= self.over_index(atom.index)
        return result

    def _bound_over(self, name: str) -> tuple[Var, ...]:
        if name in self.states:
            return self.states[name].over
        return self.bindings[name].over

    def ordered(self, over: frozenset[Var]) -> tuple[Var, ...]:
        return tuple(v for v in self.spmd if v in over)

    def _position(self, var: Var) -> Position:
        if var == self.vector:
            lanes = self.lanes_of(var)
            return (self.point[var] * lanes, lanes)
        return self.point[var] if var in self.spmd else self.scalars[var]

    # ---- expressions

    def eval(self, expr: Expr) -> Value:
        """The value of ``expr`` at the current element."""
        key = self._key(expr)
        found = self._memo.get(key)
        if found is None:
            found = self._memo[key] = self._eval(expr)
        return found

    def _key(self, expr: Expr) -> tuple[int, ...]:
        over = self.over(expr)
        # By identity, as ``over`` references the expressions: offsets built for a single store have separate ones. -1:
        # the value is the same for all elements of that variable.
        return (id(expr), *[self.point[v] if v in over else -1 for v in self.spmd])

    def _eval(self, expr: Expr) -> Value:
        match expr:
            case Const():
                return convert.constant(self.e, expr.value, expr.dtype)
            case IndexValue():
                return self.indexer.value(expr.index)
            case Load():
                return self._load(expr)
            case Read():
                return self._read(expr.name)
            case ToLine():
                return self._to_line(expr.buffer)
            case Call():
                args = [self.eval(a) for a in expr.args]
                before, self.e.origin = self.e.origin, expr.origin or self.e.origin
                value = operations.emit(self.e, expr.op, args, [a.dtype for a in expr.args], expr.dtype)
                self.e.origin = before
                return value

    def _read(self, name: str) -> Value:
        state = self.states.get(name)
        if state is not None:
            return state.values[tuple(self.point[v] for v in state.over), 0]
        binding = self.bindings[name]
        place = tuple(self.point[v] for v in binding.over)
        if binding.expr is not None and place not in binding.values:
            binding.values[place] = self.eval(binding.expr)
        return binding.values[place]

    # ---- memory

    def _to_line(self, buffer: Buffer) -> Value:
        # The number of elements to the next line: the negated address, modulo the line.
        e = self.e
        start = e.convert("ptrtoint", self.bases[buffer.name], "i64")
        nbytes = e.binary("and", e.binary("sub", e.const("i64", 0), start), e.const("i64", LINE - 1))
        return e.binary("lshr", nbytes, e.const("i64", buffer.dtype.itemsize.bit_length() - 1))

    def _load(self, load: Load) -> Value:
        """Load in the cheapest form that stays within the buffer; stride, condition and known bounds decide."""
        e, buffer = self.e, load.buffer
        # An empty buffer has no readable address.
        if buffer.size == 0:
            return zero(e, load.dtype, 0)
        o = self.indexer.offset(load.offset)
        where = self.eval(load.where) if load.where else None
        # A mask that is constantly true is proved elsewhere (``passes/nests/peeling.py``), so the position is trusted.
        if where is not None and where.const:
            where = None
        # A position without known bounds (it is data) is clamped to the buffer: a call whose check fails still runs to
        # its end.
        elif where is None and not inside(load.offset, buffer.size):
            o = self.clamped(o, None, buffer.size)
        # One lane under a condition: load from a valid address in any case, and select. Not needed if bounds of loop
        # variables prove the address valid.
        elif where is not None and not o.width and not (inside(load.offset, buffer.size) and affine(load.offset)):
            o = self.clamped(o, None if where.width else where, buffer.size)
        # Small strides read all memory between the lanes, which shares lines anyway.
        if o.vector is None and o.stride in _SHUFFLED_STRIDES:
            return convert.from_memory(e, self._load_strided(load, o, where), load.dtype)
        tile = self.turning(load) if o.lanes else None
        if tile is not None:
            return self._load_transposed(load, o, tile)
        # See ``_load_apart``; under a mask only a gather stays within the buffer.
        if where is None and (o.vector is not None or o.stride not in (0, 1)) and self._near(load):
            return convert.from_memory(e, self._load_apart(load, o), load.dtype)
        # Vector loads take the condition as a mask, together with the lanes that exist.
        masked = o.width > 0
        mask = where
        if masked:
            mask = e.both(e.widen(where, o.width) if where else None, self.active())
        address = self.indexer.address(self.bases[buffer.name], convert.memory_elem(load.dtype), o)
        # A masked load suppresses faults, but slowly: without active lanes, use a mapped address.
        if masked and mask is not None and not address.width:
            address = self._mapped(load, address, mask)
        value = self._placed(load, address, o, mask if masked else None)
        value = convert.from_memory(e, value, load.dtype)
        # A scalar under a condition was loaded from a safe place; its value counts only where the condition holds.
        if where is not None and not masked:
            value = e.select(where, value, zero(e, load.dtype, 0), branchless=True)
        return value

    def _placed(
        self, load: Load, address: Value, o: Offset, mask: Value | None, dtype: DType | None = None
    ) -> Value:  # fmt: skip
        """Return the loaded register, placed outside all loops that do not change the memory; as another ``dtype`` of
        the same size if given."""
        access = load_access(self.e, dtype or load.dtype, address, o, mask, self.region(load.buffer))
        group = self.group(load.buffer)
        # Outside of all loops that store nothing to the group: loads are loop invariants like arithmetic.
        depth = max([v.depth for v in access.operands] + [self._stable_depth(group)])
        # The version tells loads before a store from those after it, although their text is the same.
        key = f"{access.rhs}@{self.stores.version.get(group, 0)}"
        return self.e.place(access.rhs, access.elem, access.width, depth, key)

    def _load_strided(self, load: Load, o: Offset, where: Value | None) -> Value:
        """A small stride: the consecutive memory between the first and the last lane, and a shuffle."""
        e, lanes, elem = self.e, o.lanes, convert.memory_elem(load.dtype)
        active = self.active_lanes()
        # The first address of the lanes, which for negative strides is the last lane's.
        start = min(0, o.stride * (active - 1))
        span = abs(o.stride) * (active - 1) + 1
        # Lanes that do not exist read the last lane's element.
        wanted = [o.stride * min(lane, active - 1) - start for lane in range(lanes)]
        result: Value | None = None
        # As many vectors as the span takes, each shuffled into its lanes.
        for first in range(0, span, lanes):
            piece = Offset(o.const + start + first, o.scalars, 1, lanes)
            address = self.indexer.address(self.bases[load.buffer.name], elem, piece)
            here = [p - first if first <= p < first + lanes else -1 for p in wanted]
            if where is None:
                # Not beyond the last lane: the buffer may end there.
                mask = tail_mask(e, lanes, span - first)
            else:
                mask = self._mask_apart(where, here, active)
                address = self._mapped(load, address, mask)
            loaded = self._placed(load, address, piece, mask)
            if result is None:
                result = e.shuffle(loaded, here)
            else:
                pairs = zip(wanted, here, strict=True)
                # Lanes of earlier vectors stay, those of this one come in.
                merged = [lane if p < first else lanes + max(k, 0) for lane, (p, k) in enumerate(pairs)]
                result = e.shuffle(result, merged, loaded)
        assert result is not None
        return result

    def _mask_apart(self, where: Value, places: list[int], active: int) -> Value:
        """The condition of lanes at ``places`` of consecutive memory; false elsewhere."""
        e, lanes = self.e, len(places)
        lane_at = {p: lane for lane, p in enumerate(places[:active]) if p >= 0}
        nowhere = e.lanes("i1", [0] * lanes)
        # The condition of a lane moves to the place in memory from which the lane reads.
        return e.shuffle(e.widen(where, lanes), [lane_at.get(p, lanes) for p in range(lanes)], nowhere)

    def _mapped(self, load: Load, address: Value, mask: Value) -> Value:
        """Return the address, or a mapped one if no lane is loaded: masked loads of unmapped memory are slow."""
        # Bounds prove that the address is mapped.
        if inside(load.offset, load.buffer.size):
            return address
        e = self.e
        some = e.compare("icmp ne", e.mask_bits(mask), e.const(f"i{mask.width}", 0))
        return e.select(some, address, self.bases[load.buffer.name])

    def _near(self, load: Load) -> bool:
        """Whether the lanes of one vector, and of the next ones, are close together in memory."""
        reach = 0
        for atom, factor in load.offset.terms:
            if self.over_index(Index(((atom, 1),))):
                if atom.bounds is None:
                    return False
                reach += abs(factor) * (atom.bounds[1] - atom.bounds[0])
        # For the whole tile or vector variable, not for one vector: the next vectors should be near as well.
        return reach * load.dtype.itemsize <= _NEAR

    def _load_apart(self, load: Load, o: Offset) -> Value:
        """Load lane by lane, which from a near cache takes half the time of a gather instruction."""
        e, elem = self.e, convert.memory_elem(load.dtype)
        result = Value("poison", elem, o.width)
        for lane in range(self.active_lanes()):
            own = [(e.lane(o.vector, lane), 1)] if o.vector is not None else []
            piece = Offset(o.const + o.stride * lane, [*o.scalars, *own])
            address = self.indexer.address(self.bases[load.buffer.name], elem, piece)
            result = e.insert(result, self._placed(load, address, piece, None), lane)
        return result

    def turning(self, load: Load) -> Var | None:
        """The tile variable along which memory is contiguous, if lanes are strided: blocks of memory are then
        transposed."""
        if load.where is not None or self.vector is None or not inside(load.offset, load.buffer.size):
            return None
        stride = load.offset.coefficient(self.vector)
        if stride is None or stride in (0, 1, *_SHUFFLED_STRIDES):
            return None
        return contiguous_tile(load.offset, self.vector, self.spmd)

    def _load_transposed(self, load: Load, o: Offset, tile: Var) -> Value:
        """Load contiguous pieces along ``tile``, one for each lane, and transpose in registers: one load for several
        elements."""
        e, elem, here = self.e, convert.memory_elem(load.dtype), self.point[tile]
        terms = _terms_of_square(load, o.lanes)
        if terms and here % terms == 0 and tile.extent - here >= terms:
            return self._load_square(load, o, tile, terms)
        # Pieces within which processors shuffle fastest: few registers, and no shuffle crosses them.
        side = min(o.lanes, SHUFFLE_BYTES // load.buffer.dtype.itemsize)
        first = here - here % side
        count = min(side, tile.extent - first)
        side = min(side, next_power_of_two(count))
        rows = []
        for lane in range(self.active_lanes()):
            piece = Offset(o.const + first - here + o.stride * lane, o.scalars, 1, side)
            address = self.indexer.address(self.bases[load.buffer.name], elem, piece)
            rows.append(self._placed(load, address, piece, tail_mask(e, side, count)))
        # This also provides the vectors of the tile's other elements.
        for n, column in enumerate(columns(e, rows, o.lanes)[:count]):
            self.point[tile] = first + n
            self._memo[self._key(load)] = convert.from_memory(e, column, load.dtype)
        self.point[tile] = here
        return self._memo[self._key(load)]

    def _load_square(self, load: Load, o: Offset, tile: Var, terms: int) -> Value:
        """Load one line for each lane and transpose the square: one load for all of a lane's ``terms``.

        Lanes whose distance is a power of two share few sets of the first cache: their lines are read once each.
        """
        e, here, elem = self.e, self.point[tile], convert.memory_elem(load.dtype)
        # LLVM splits vectors of float16 into halves on processors without arithmetic for it.
        words = bfloat16 if load.dtype is float16 else load.dtype
        rows = []
        for lane in range(self.active_lanes()):
            piece = Offset(o.const + o.stride * lane, o.scalars, 1, terms)
            address = self.indexer.address(self.bases[load.buffer.name], elem, piece)
            rows.append(self._placed(load, address, piece, None, words))
        for n, column in enumerate(square(e, rows, o.lanes, elem)):
            self.point[tile] = here + n
            self._memo[self._key(load)] = column
        self.point[tile] = here
        return self._memo[self._key(load)]

    def _stable_depth(self, group: str) -> int:
        """The outermost block inside which nothing is stored to ``group``."""
        depth = self.e.depth
        # Each open block knows which groups are stored to inside of it.
        while depth > 0 and group not in self.stores.open[depth]:
            depth -= 1
        return depth

    def clamped(self, o: Offset, inside: Value | None, size: int) -> Offset:
        """An offset that is 0 where it would be out of bounds (or if ``inside`` is false)."""
        e = self.e
        index = self.indexer.join(o)
        if inside is None:
            # Unsigned comparison: negative positions are large numbers, so one test does for both ends.
            inside = e.compare("icmp ult", index, e.const("i64", size))
        safe = e.select(inside, index, e.const("i64", 0))
        return Offset(0, [], vector=safe) if safe.width else Offset(0, [(safe, 1)])

    def region(self, buffer: Buffer) -> Region | None:
        """The bounds and tag that accesses of ``buffer`` are checked with; None in unchecked programs."""
        e = self.e
        if e.module.shadow is None:
            return None
        number = e.const("i64", [*self.bases].index(buffer.name) << 40)
        words = [
            e.binary("add", Value("%step", "i64"), e.binary("add", number, e.const("i64", failure_word(kind))))
            for kind in ("outside", "stale")
        ]
        tag = self.tags.get(buffer.name) or e.const("i64", NOT_SHADOWED)
        return Region(self.bases[buffer.name], buffer.size * buffer.dtype.itemsize, tag, words[0], words[1])

    def group(self, buffer: Buffer) -> str:
        """Buffers of one group may share memory."""
        return self.groups.get(buffer.name, buffer.name)


def _terms_of_square(load: Load, lanes: int) -> int:
    """Terms of a line, if lines of all lanes are a square of 16 or 8 registers; 0 otherwise."""
    terms = LINE // load.dtype.itemsize
    # Elements of 16 bits are transposed in pairs. With fewer lanes there are half as many registers, too.
    words = terms // 2 if load.dtype.itemsize == 2 else terms
    return terms if words == lanes and load.dtype.is_floating_point else 0


def affine(index: Index) -> bool:
    """Whether ``index`` is made of loop variables alone, so that its bounds hold even where nothing is loaded."""
    # Divisions of loop variables have bounds too; only data may leave them.
    return not any(isinstance(a, Computed) or (not isinstance(a, Var) and not affine(a.index)) for a, _ in index.terms)


def inside(index: Index, size: int) -> bool:
    """Whether ``index`` is in ``range(size)`` for all values of its variables."""
    bounds = index.bounds
    return bounds is not None and bounds[0] >= 0 and bounds[1] < size
