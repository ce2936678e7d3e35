"""The lines of random Python programs, and the module around them (``python_programs.py``)."""
# ruff: noqa: E501  a line of a program is one line

from __future__ import annotations

SETUP = """
import collections, contextlib, copy, dataclasses, enum, functools, itertools, math, operator, typing
import numpy as np
import tracecomp as torch
from tracecomp import nn
from tracecomp.nn import functional as F

@dataclasses.dataclass
class Pair:
    first: typing.Any
    second: typing.Any = None
    notes: list = dataclasses.field(default_factory=list)
    def __add__(self, other):
        return Pair(self.first + other.first, self.second)
    @property
    def total(self):
        return self.first.sum()

@dataclasses.dataclass(frozen=True)
class Frozen:
    t: typing.Any
    k: int = 2

Point = collections.namedtuple("Point", "x y")

class Color(enum.Enum):
    RED = 1
    BLUE = 2

class Lazy:
    def __init__(self):
        self.asked = 0
        self.table = {"scale": 2.0}
    def __getattr__(self, name):
        if name.startswith("w_"):
            return len(name)
        raise AttributeError(name)
    def __getitem__(self, key):
        return self.table[key]
    def __setitem__(self, key, value):
        self.table[key] = value
    def __len__(self):
        return len(self.table)
    def __call__(self, t):
        self.asked += 1
        return t * self.asked
    def __contains__(self, key):
        return key in self.table
    def __iter__(self):
        return iter(list(self.table.values()))
    def __bool__(self):
        return self.asked % 2 == 0

class Clamped:
    def __set_name__(self, owner, name):
        self.name = "_" + name
    def __get__(self, obj, kind=None):
        return self if obj is None else getattr(obj, self.name, 0.5)
    def __set__(self, obj, value):
        setattr(obj, self.name, min(max(value, 0.0), 3.0))

class Slotted:
    __slots__ = ("t", "count", "_level")
    level = Clamped()
    def __init__(self):
        self.t, self.count, self._level = None, 0, 1.0

class Base:
    factor = 2.0
    def scale(self, t):
        return t * self.factor
    @classmethod
    def made(cls, t):
        return cls().scale(t)
    @staticmethod
    def doubled(t):
        return t + t

class Derived(Base):
    factor = 3.0
    def scale(self, t):
        return super().scale(t) + 1

class Guard:
    def __init__(self, log):
        self.log = log
    def __enter__(self):
        self.log.append("in")
        return self
    def __exit__(self, kind, value, trace):
        self.log.append(None if kind is None else kind.__name__)
        return kind is ValueError

@contextlib.contextmanager
def scaled(holder, by):
    old = holder["by"]
    holder["by"] = by
    try:
        yield holder
    finally:
        holder["by"] = old

@functools.lru_cache(maxsize=4)
def cached(n):
    return n * n + 1

@functools.singledispatch
def kind_of(v):
    return 0
@kind_of.register
def _(v: int):
    return 1
@kind_of.register
def _(v: float):
    return 2
@kind_of.register
def _(v: torch.Tensor):
    return 3
@kind_of.register(list)
def _(v):
    return 4

def gathered(*args, by=1.0, **more):
    return sum(a * by for a in args) + sum(v for _, v in sorted(more.items()))

def nested(t, depth):
    return t if depth == 0 else nested(t * 0.5 + depth, depth - 1)

def pieces(t, count):
    for i in range(count):
        got = yield t[i % max(len(t), 1)] * i
        if got is not None:
            t = t + got

def remember(t, seen=[]):
    seen.append(float(len(seen)))
    return t + len(seen)

def counter():
    n = 0
    def step():
        nonlocal n
        n += 1
        return n
    return step

def chained(t):
    try:
        yield from (t * i for i in range(2))
    finally:
        LOG.append("closed")

def decorated(fn):
    @functools.wraps(fn)
    def inner(*args, **kwargs):
        LOG.append(fn.__name__)
        return fn(*args, **kwargs)
    return inner

@decorated
def plus(t, k=1):
    return t + k

@torch.compile
def inner_compiled(t, k):
    return (t * k).relu()

def thrower(t, flag):
    if flag:
        raise ValueError("flag")
    return t * 3

class Noting(list):
    def append(self, value):
        super().append((value, len(self)))

class Triple(dict):
    def __setitem__(self, key, value):
        super().__setitem__(key, value * 3)

class Strict:
    def __setattr__(self, name, value):
        LOG.append(name)
        object.__setattr__(self, name, value + 1)

class Tripled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, t):
        ctx.save_for_backward(t)
        return t * 3
    @staticmethod
    def backward(ctx, g):
        return g * 3 + ctx.saved_tensors[0] * 0

LINEAR = nn.Linear(4, 2)
with torch.no_grad():
    LINEAR.weight.copy_(torch.arange(8.0).reshape(2, 4) / 5), LINEAR.bias.fill_(0.5)
ARRAY = np.zeros(3)
LOG = []
BACK = [LOG.append]
NOTING, TRIPLE, STRICT = Noting(), Triple(), Strict()
COUNT = 0
TABLE = {"a": 1.0, "b": 2.0}
STACK = collections.deque(maxlen=3)
BY = {"by": 1.5}
LAZY = Lazy()
SLOT = Slotted()
STEP = counter()
WEIGHT = torch.arange(4.0) / 3
STATE = {"h": torch.zeros(4), "n": 0}
HALF = functools.partial(torch.mul, other=0.5)
ORDER = collections.OrderedDict(b=1, a=2)
SEEN = set()
COUNTS = collections.Counter()
GROUPS = collections.defaultdict(list)
"""

LINES = (
    # keeping and taking apart
    "p = Pair(x, y); x = (p + p).first; out.append(p.total)",
    "p = Pair(x); p.notes.append(y.sum()); out.append(p.notes[-1]); x = dataclasses.replace(p, first=y).first + x",
    "fz = Frozen(x, n); x = fz.t * fz.k; out.append(dataclasses.astuple(Frozen(1.0, n)))",
    "pt = Point(x, y); x, y = pt._replace(x=pt.y); out.append(pt)",
    "a, *rest = x; out.append(len(rest)); x = torch.stack([a, *rest])",
    "(a, b), c = (x, y), n; x = a + b * c",
    "x, y = y, x",
    "d = {'u': x, **TABLE, 'v': y}; d.pop('a'); out.append(list(d)); x = d['u'] + d['b']",
    "out.append({k: v * 2 for k, v in {'q': x, 'r': y}.items()})",
    "out.append([x, [y, (x, n)], {'k': {'z': y}}])",
    "t2 = [x] * 2; t2[0] = t2[0] + 1; x = t2[0] - t2[1] + x",
    "o = {**ORDER}; o['c'] = n; out.append(list(o.items())); x = x * sum(o.values())",
    "s = sorted([(float(i * 7 % 5), i) for i in range(4)], key=lambda p: (-p[0], p[1])); x = x + s[0][1]",
    "vals = sorted([x.sum().item(), y.sum().item(), 0.5]); out.append(vals)",
    "best = max([x, y], key=lambda t: float(t.abs().sum())); out.append(best is x); x = best * 1",
    "x = functools.reduce(torch.add, [x, y, x]); out.append(list(itertools.accumulate([1, n, 3])))",
    "x = sum((t * i for i, t in enumerate(x.unbind(1))), torch.zeros(len(x)))[:, None] + x",
    "for i, (a, b) in enumerate(zip(x, y)): out.append((a * b).sum() + i)",
    "x = torch.stack(list(map(lambda r: r * 2, x))) if len(x) else x",
    "x = torch.stack([r for r in x if r.sum() > 0] or [x.sum(0)])",
    "x = x[::2] if len(x) > 2 else x; y = y[: len(x)]",
    "chunks = x.chunk(2); out.append(len(chunks)); x = torch.cat(chunks[::-1])",
    # choosing
    "match n:\n    case 0: x = x + 1\n    case 1 | 2: x = x * 2\n    case int() if n > 3: x = x - n\n    case _: out.append('other')",
    "match Point(n, 1):\n    case Point(x=0, y=q): x = x + q\n    case Point(x=m): x = x * m",
    "match [x, y]:\n    case [a, b]: x = a + b",
    "match {'k': n}:\n    case {'k': 2}: x = x * 5\n    case {'k': q}: x = x + q",
    "x = x * 2 if flag else y * 3",
    "if flag and x.sum() > 0: x = x.relu()\nelif not flag: x = -x",
    "x = (flag and x) if flag else (None or y)",
    "while (m := x.abs().max()) > 4: x = x / 2",
    "for i in range(n):\n    if i == 2: continue\n    if i > 3: break\n    x = x + i\nelse: out.append('done')",
    "x = {True: x, False: y}[bool(flag)] + 1",
    "x = (x if n % 2 else y) * n // 1",
    "out.append(Color(1 + n % 2).name); x = x * Color.BLUE.value",
    "assert x.ndim == 2, 'rank'",
    "TABLE.setdefault('tmp', 0.0); TABLE['tmp'] += 1.0; x = x + TABLE['tmp']",
    # calling
    "x = gathered(x, y, by=2.0, **{'q': 1.0, 'r': n})",
    "x = gathered(*[x, y][:1 + n % 2]) + 0 * x",
    "x = nested(x, n % 4)",
    "x = HALF(x); out.append(functools.partial(pow, n)(2))",
    "x = x * cached(n)",
    "out.append([kind_of(v) for v in (n, 1.5, x, [x], flag)])",
    "x = plus(x, k=n)",
    "x = remember(x)",
    "out.append(STEP())",
    "x = Derived().scale(x) + Base.made(x) + Derived.doubled(y)[: len(x)]",
    "x = Derived.made(x); out.append(isinstance(Derived(), Base))",
    "x = (lambda t, k=n: t + k)(x)",
    "fs = [lambda t, i=i: t * i for i in range(1, 3)]; x = fs[1](fs[0](x))",
    "fs = [lambda t: t + i for i in range(3)]; x = fs[0](x)",
    "x = inner_compiled(x, n)",
    "x = operator.matmul(x, WEIGHT.diag()); out.append(operator.attrgetter('shape')(x))",
    "x = operator.methodcaller('mul', 2)(x)",
    "x = getattr(torch, 'tan' + 'h')(x); out.append(hasattr(x, 'nothing'))",
    # generators
    "out.append([g.sum() for g in pieces(x, n % 3)])",
    "g = pieces(x, 2); next(g); out.append(g.send(y.sum()) if len(x) else 0)",
    "out.append(sum(t.sum() for t in chained(x)))",
    "out.append(list(itertools.islice((i * n for i in itertools.count(1)), 3)))",
    "x = x + sum(a * b for a, b in itertools.product([1.0, 2.0], [n, 0.5]))",
    "out.append([int(a) for a, _ in itertools.groupby([1, 1, n, n, 2])])",
    # errors and blocks
    "try: x = thrower(x, flag)\nexcept ValueError as e: out.append(str(e)); x = x - 1",
    "try: x = x + torch.ones(7, 7)\nexcept RuntimeError: out.append('shape')\nelse: out.append('fine')\nfinally: x = x + 2",
    "try: x = x * TABLE['missing']\nexcept (KeyError, IndexError) as e: out.append(type(e).__name__)",
    "try: x = x[n]; x = x[None] * 1\nexcept IndexError: out.append('index')",
    "try:\n    with Guard(LOG): x = thrower(x, flag)\nexcept TypeError: pass",
    "with Guard(LOG): x = x * 2",
    "with scaled(BY, 2.5) as h: x = x * h['by']",
    "with torch.no_grad(): z = x * 2\nx = x + z",
    "with contextlib.suppress(ValueError): x = thrower(x, flag); out.append('kept')",
    "with contextlib.ExitStack() as st: st.callback(LOG.append, n); x = x + 1",
    "if n == 5: raise KeyError(n)",
    # objects
    "x = LAZY(x)",
    "x = x * LAZY.w_abc + LAZY['scale']; out.append(('scale' in LAZY, len(LAZY), bool(LAZY)))",
    "LAZY['scale'] = LAZY['scale'] + 1; x = x + sum(LAZY)",
    "SLOT.level = SLOT.level + 1.0; x = x * SLOT.level",
    "SLOT.count += n; SLOT.t = x.detach(); x = x + SLOT.count",
    "global COUNT; COUNT += 1; x = x + COUNT",
    "STACK.append(n); x = x + sum(STACK)",
    "STACK.append(x.detach().sum()); out.append(STACK[-1])",
    "LOG.append(x.sum().item())",
    "LOG.append((n, flag)); LOG[:] = LOG[-5:]",
    "STATE['h'] = STATE['h'] * 0.5 + x.detach().sum(0)[:4]; x = x + STATE['h']",
    "STATE['n'] += n; x = x * (1 + STATE['n'] % 3)",
    "STATE['h'].add_(1.0); x = x + STATE['h']",
    "SEEN.add(n); x = x * len(SEEN)",
    "COUNTS[n] += 1; x = x + COUNTS.most_common(1)[0][1]",
    "GROUPS[n].append(len(GROUPS)); out.append(len(GROUPS[n]))",
    "x.mark = n; out.append(x.mark)",
    "out.append(f'{n:03d} {flag!r} {x.shape} {x.dtype}')",
    "out.append('%s-%d' % (n, n)); out.append(' '.join(map(str, x.shape)))",
    # methods that are handed on, and a class's own
    "list(map(LOG.append, [n, 1])); del LOG[:-4]",
    "functools.partial(LOG.append, n)(); list(filter(LOG.append, [flag])); del LOG[:-4]",
    "BACK[0](n); out.append(max(TABLE, key=TABLE.get)); del LOG[:-4]",
    "NOTING.append(n); x = x + len(NOTING)",
    "TRIPLE[n] = n; TRIPLE['k'] = float(n); out.append(dict(TRIPLE))",
    "STRICT.level = n; out.append(STRICT.level)",
    "out.append((type(n) is int, isinstance(n, int), n.bit_length(), list(map(type, [n, flag]))))",
    # sizes
    "x = x[:n] if n < len(x) and n else x; y = y[: len(x)]",
    "x = x + torch.zeros(n, 4).sum(); out.append(torch.arange(n))",
    "x = F.pad(x, (0, 0, 0, n)); y = F.pad(y, (0, 0, 0, n))",
    "x = x[: n + 1].repeat(2, 1)[: len(x)]; y = y[: len(x)]",
    "out.append(torch.full((n,), 2.5)); out.append(x.narrow(0, 0, min(n, len(x))).sum())",
    # tensors
    "y = y.clone(); y[0:n] = x[0:n] * 2 if len(x) == len(y) else 1.0",
    "for i in range(min(len(y), 3)): y = y.clone(); y[i] += i",
    "y = y.clone(); v = y[:, 1]; v.mul_(3); x = x + v.sum()",
    "v = x.clone().t(); v[0].zero_(); x = v.t().contiguous()",
    "x = torch.where(x > 0, x, y if y.shape == x.shape else torch.zeros(()))",
    "x = x.masked_fill(x < -1, float(n))",
    "z = x.clone(); z[z > 1] = 1.0; x = z",
    "out.append(x[x > 0].sum())",
    "out.append((x > 0).sum()); out.append((x > 0).any().item())",
    "i8 = (x * 10).to(torch.int8); out.append(i8 + n); out.append(i8 / 2)",
    "i64 = (x * 10).long(); out.append(i64 // 3); out.append(i64 % 3); out.append((i64 ** 2).dtype)",
    "out.append(torch.promote_types(x.dtype, torch.int16)); out.append((x.to(torch.float16) + n).dtype)",
    "out.append(x.half() * y.sum().double())",
    "out.append(x.sum() + torch.tensor(n)); out.append(torch.tensor(n) * 2.5)",
    "out.append(torch.tensor([n, flag, 2]))",
    "out.append(torch.complex(x, x).abs()); out.append((x * 1j).imag)",
    "e = x[:0]; out.append(e.sum()); out.append(e.shape); x = torch.cat([e, x])",
    "s = x.sum(); s = s + 1; out.append(s[None].expand(2)); x = x * (s * 0 + 1)",
    "out.append(np.float32(n) * x.sum()); x = x * np.int64(2)",
    "out.append(x.sum().item() > 0); out.append(int(x.numel()))",
    "out.append(x.tolist()[0][:1] if len(x) else [])",
    "out.append(x is y); out.append(x.t()); out.append(x.detach())",
    "out.append(torch.broadcast_to(WEIGHT, (2, 4))); out.append(WEIGHT[1:])",
    "x = x.view(-1, 2, 2).transpose(1, 2).reshape(-1, 4)",
    "w = WEIGHT.clone().requires_grad_(); (x * w).sum().backward(); out.append(w.grad)",
    "w = x.detach().clone().requires_grad_(); out.append(torch.autograd.grad((w ** 3).sum(), w, create_graph=True)[0].sum())",
    "out.append(torch.func.vmap(lambda r: r.sum() * n)(x))",
    "x = F.dropout(x, 0.5, training=False); out.append(F.softmax(x, dim=-1).argmax(-1))",
    "q = x.sort(0); out.append(q.values); out.append(q.indices[0] if len(x) else q.indices)",
    "u, c = torch.unique(x.round(), return_counts=True); out.append(u); out.append(c)",
    "out.append(torch.nonzero(x > 0.5)); out.append(x.topk(2, dim=1))",
    "x = x.clone(); x[..., -1] = x[..., 0]; x[:, None, 1] += 1",
    "idx = torch.tensor([0, 2, 1]); x = x[:, idx.tolist() + [n % 4]]",
    "x = x.index_select(1, torch.tensor([3, 2, 1, n % 4])); x = torch.nan_to_num(x / x)",
    "it = iter(x); out.append(next(it, None)); out.append(len(list(it)))",
    "copy_of = copy.deepcopy({'a': x.detach(), 'b': [n]}); out.append(copy_of)",
    "z = x; z = z + 1; z += y.sum(); out.append(z)",
    "x = x.clone(); z = x; z += 1; out.append(z is x)",
    # transforms inside, and what they leave to others
    "out.append(torch.func.grad(lambda t: (t * t.sum()).sum())(x))",
    "out.append(torch.func.grad_and_value(lambda t: F.softplus(t * n).sum())(x))",
    "out.append(torch.func.vmap(lambda a, b: a @ b, in_dims=(1, 1))(x, y) if len(x) == len(y) else n)",
    "v, back = torch.func.vjp(lambda t: t.sin() * n, x); out.append(back(v)[0])",
    "out.append(torch.func.jacrev(lambda t: t.sum(0) * t[0] if len(t) else t.sum(0))(x).shape)",
    "out.append(torch.func.functional_call(LINEAR, {'weight': LINEAR.weight * n}, (x,)))",
    "h = x.detach().clone().requires_grad_(); z = h * n; z.register_hook(lambda g: g * 3); z.sum().backward(); out.append(h.grad)",
    "h = x.detach().clone().requires_grad_(); z = h * 2; z.retain_grad(); z.square().sum().backward(); out.append(z.grad)",
    "out.append(Tripled.apply(x.detach().requires_grad_()).requires_grad)",
    # settings and modes, seen and set
    "out.append((torch.is_grad_enabled(), torch.get_default_dtype())); out.append(torch.ones(2) * n)",
    "torch.set_default_dtype(torch.float64); out.append(torch.ones(1) + 0.5); torch.set_default_dtype(torch.float32)",
    "with torch.set_grad_enabled(flag): z = WEIGHT.clone().requires_grad_() * 2\nout.append(z.requires_grad)",
    "with torch.autocast('cpu', dtype=torch.bfloat16, enabled=flag): out.append((x @ x.t()).dtype)",
    "with torch.inference_mode(): z = x * 2\nout.append((z.is_inference(), z.sum()))",
    "LINEAR.train(flag); out.append(LINEAR.training); out.append(F.dropout(x, 0.0, LINEAR.training))",
    # shapes changed in place, sizes in data
    "z = x.clone(); v = z[:, 0]; z.t_(); z.mul_(2); out.append((v.sum(), z.shape))",
    "z = x * 1; v = z[0:1]; z.unsqueeze_(0); z.add_(1); out.append(v); z.squeeze_(0); x = z",
    "z = x * 1; z.resize_(len(x), 2); out.append(z)",
    "z = x * 1; z.data = y.detach() + 1; out.append(z); x = x + z.sum()",
    "z = x.clone(); z.detach_(); out.append(z.requires_grad); z.transpose_(0, 1); out.append(z)",
    "out.append(torch.tensor([len(x), x.shape[1], n])); x = x / torch.tensor(x.shape).prod()",
    "out.append(x.new_tensor(list(x.shape)).sum()); out.append(x.new(x.shape).shape); out.append(torch.full(x.shape, len(x) / 2))",
    "x = torch.arange(len(x))[:, None] * x; out.append(torch.eye(len(x)).sum())",
    # attributes of arguments
    "x.tag = [n]; x.tag.append(len(x)); out.append(getattr(y, 'tag', None))",
    "y.scale = n + 1; x = x * y.scale; out.append(hasattr(x, 'scale'))",
    # errors that depend on numbers, sizes and elements
    "try: x = torch.stack([x[n], x[0]])\nexcept IndexError: out.append('number')",
    "try: x = x + torch.arange(float(n))\nexcept RuntimeError: out.append('size')",
    "try: out.append(WEIGHT[(x[0] * 4).long()])\nexcept IndexError: out.append('element')",
    "try: out.append(torch.linalg.cholesky(x[:2, :2]))\nexcept RuntimeError: out.append('matrix')",
    "try: out.append(7 // (x * 2).long())\nexcept RuntimeError: out.append('zero')",
    "with contextlib.suppress(IndexError): out.append(F.embedding((x[0] * 3).long(), WEIGHT[:, None]))",
    "try: out.append(int(1 / (n - 2)))\nexcept ZeroDivisionError as e: out.append(type(e).__name__)",
    # iterators that change while they are read
    "todo = [x]; [todo.append(t * 2) for t in todo if len(todo) < 3]; x = sum(todo)",
    "it = iter([1, n, 3]); next(it); out.append((iter(it) is it, list(it), list(it)))",
    "r = reversed([x, y]); out.append(next(r).sum()); out.append(len(list(r)))",
    "class Inner:\n    def touch(self, t): LOG.append(n); TABLE['a'] += 1.0; return t * TABLE['a']\nx = Inner().touch(x)",
    # other dtypes
    "i = (x * 100).to(torch.int8); out.append((i * i, i << 1, i.sum(), i.cumsum(0), i.argmax(), -i, i // 3))",
    "out.append(torch.ldexp(x.half(), torch.tensor(n))); out.append(F.huber_loss(x.half(), y.half()[: len(x)]) if len(x) == len(y) else n)",
    "b = x > 0; out.append((b.max(0).values, b.cumsum(0), b.argsort(1, stable=True), b.float().mean(), b ^ (n > 2)))",
    "out.append((x.to(torch.uint8) + 250, x.double().to(torch.float16), (x * 1e4).half(), x.bfloat16() * n))",
    "c = torch.complex(x, x * n); out.append((c.conj().imag, (c * c).real, torch.view_as_real(c).sum(), c.abs().argmax()))",
    "s = F.threshold((x * 5).long(), 1, n); out.append(s); out.append(F.hardtanh((x * 5).int(), -1, 2))",
    # arrays of numpy
    "a = np.arange(4.0, dtype=np.float32) + n; a[0] = 9; t = torch.from_numpy(a); out.append((t * 2, float(a.sum())))",
    "ARRAY[n % 3] += 1; x = x + float(ARRAY.sum()); out.append(torch.tensor(ARRAY))",
    "y.add_(0.5)",
    "y[0] = 9.0",
    "yv = y.view(-1)[1:3]; yv.copy_(torch.tensor([1.0, 2.0])); out.append(yv)",
)
RESULTS = (
    "x, out", "out", "{'x': x, 'out': out}", "Pair(x, out)", "Point(x, y)", "[x, y, x]", "x", "None", "(x, x.t(), out)",
)  # fmt: skip
