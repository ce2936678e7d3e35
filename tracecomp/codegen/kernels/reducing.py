"""Accumulators among the statements of a kernel: declared, updated in their lanes, combined."""

from __future__ import annotations

from tracecomp.codegen.kernels import accumulate
from tracecomp.codegen.kernels.accumulate import State
from tracecomp.codegen.kernels.elements import Binding, Elements, Point
from tracecomp.codegen.text.emitter import Value
from tracecomp.ir.index import Computed, Index, Var
from tracecomp.ir.loops import Acc, Accumulate, Call, Expr, IndexValue, Let, Load, Loop, Read, Stmt, Update, walk


class Reducing(Elements):
    """Elements among which values are accumulated."""

    def _accumulate(self, stmt: Accumulate) -> None:
        # All are declared before any is settled, because they may read each other.
        states = {a.name: self._declare(a, stmt) for a in stmt.accs}
        self.states.update(states)
        self._settle_over(stmt, states)
        for state in states.values():
            for point in self.points(state.over):
                accumulate.start(self.e, state, point, self._initial(state))
        self.body(stmt.body)
        for name, state in states.items():
            # Combined when the body is done; from here on the name is an ordinary binding.
            values = {p: accumulate.total(self.e, state, p) for p in self.points(state.over)}
            self.bindings[name] = Binding(state.over, values)
            del self.states[name]

    def _initial(self, state: State) -> Value:
        init = self.eval(state.acc.init)
        if state.lane_width:
            # Lanes start with the same number: an identity, or totals that continue element by element (then there is
            # one lane).
            return self.e.widen(init, state.lane_width)
        return self.e.widen(init, self.lanes_of(self.vector)) if self.vector in state.over and self.vector else init

    def _declare(self, acc: Acc, stmt: Accumulate) -> State:
        surrounding = frozenset(self.spmd)
        if acc.lanes == 1:
            # One sum in order; vectors are then taken apart lane by lane.
            return State(acc, (), surrounding, 0, 1)
        vectorised = any(
            isinstance(s, Loop) and s.kind == "vector" and _updates(s.body, acc.name) for s in walk(stmt.body)
        )
        # Partial sums without a vector loop (a short row) are scalars, chosen by position.
        if not vectorised:
            return State(acc, (), surrounding, 0, acc.lanes)
        # Partial sums are in as many vectors as their lanes fill: 64 floats are four registers of 16. The order of the
        # sum is the same for all widths.
        lane_width = min(acc.lanes, self.width)
        return State(acc, (), surrounding, lane_width, acc.lanes // lane_width)

    def _settle_over(self, stmt: Accumulate, states: dict[str, State]) -> None:
        """The surrounding elements over which each accumulator differs: iterated, as accumulators may read each
        other."""
        sources = _sources(stmt)
        over: dict[str, frozenset[Var]] = {}
        free = {name: [_free(x) for x in exprs] for name, exprs in sources.items()}
        surrounding = frozenset(self.spmd)
        # A fixed point: an accumulator that reads another also differs over the variables of that one.
        changed = True
        while changed:
            changed = False
            for name, parts in free.items():
                found: frozenset[Var] = frozenset()
                for variables, reads in parts:
                    found |= variables & surrounding
                    for read in reads:
                        found |= over.get(read, frozenset()) if read in free else frozenset(self._bound_over(read))
                if found != over.get(name, frozenset()):
                    over[name], changed = found, True
        for name, state in states.items():
            state.over = self.ordered(over.get(name, frozenset()))

    def _update(self, stmt: Update) -> None:
        state = self.states[stmt.name]
        over = frozenset(state.over)
        # Loops inside of the accumulator's declaration are summed over; those around it make it several.
        inner = [v for v in self.spmd if v not in state.surrounding]
        elements = self.ordered(over | frozenset(inner))
        vector_inside = self.vector is not None and self.vector in inner
        # An update that reads accumulators which it changes must not reuse values of the previous element.
        moving = any(_free(a)[1] & self.states.keys() for a in stmt.args)
        unnoted: dict[Point, list[Value]] = {}
        for _ in self.points(elements):
            if moving:
                self.forget()
            args = [self.eval(a) for a in stmt.args]
            where = tuple(self.point[v] for v in state.over)
            if vector_inside and self.vector is not None:
                lanes = self.lanes_of(self.vector)
                chunk = self.point[self.vector]
                active = min(lanes, self.vector.extent - chunk * lanes)
                vectors = accumulate.update_lanes(self.e, state, where, args, chunk, lanes, active)
                unnoted.setdefault(where, []).extend(vectors)
            else:
                # Without a vector loop the innermost variable distributes elements.
                part = self.point[inner[-1]] % state.acc.lanes if inner and not state.lane_width else 0
                accumulate.update_part(self.e, state, (where, part), args)
        # NaN is recorded once for all vectors of an accumulator: one comparison for each two.
        for where, vectors in unnoted.items():
            accumulate.note_nan(self.e, state, where, vectors)


def _sources(stmt: Accumulate) -> dict[str, list[Expr]]:
    """Every name bound in or by ``stmt`` with the expressions its value is made of."""
    result: dict[str, list[Expr]] = {}
    for s in walk((stmt,)):
        if isinstance(s, Let):
            result.setdefault(s.name, []).append(s.value)
        elif isinstance(s, Accumulate):
            for acc in s.accs:
                result.setdefault(acc.name, []).append(acc.init)
        elif isinstance(s, Update):
            result.setdefault(s.name, []).extend(s.args)
    return result


def _free(expr: Expr) -> tuple[frozenset[Var], frozenset[str]]:
    """Loop variables and names that occur in ``expr``."""
    variables: set[Var] = set()
    names: set[str] = set()
    seen: set[int] = set()
    stack: list[Expr | Index] = [expr]
    while stack:
        x = stack.pop()
        # Expressions share parts (the graph is a DAG), which would be walked again on every path.
        if id(x) in seen:
            continue
        seen.add(id(x))
        match x:
            case Read():
                names.add(x.name)
            case Call():
                stack.extend(x.args)
            case Load():
                stack.append(x.offset)
                if x.where:
                    stack.append(x.where)
            case IndexValue():
                stack.append(x.index)
            case Index():
                for atom, _ in x.terms:
                    if isinstance(atom, Var):
                        variables.add(atom)
                    else:
                        stack.append(atom.expr if isinstance(atom, Computed) else atom.index)
    return frozenset(variables), frozenset(names)


def _updates(body: tuple[Stmt, ...], name: str) -> bool:
    return any(isinstance(s, Update) and s.name == name for s in walk(body))
