"""Programs compiled by another process: the same bits whenever they become ready, and nothing lost whatever happens."""

from __future__ import annotations

import io
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from multiprocessing import Pipe
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tracecomp as tc
from tests.replay import corpus
from tracecomp import nn
from tracecomp.base import config, progress
from tracecomp.base.progress import Steps
from tracecomp.compiled import background, compile_worker
from tracecomp.compiled.background import Job
from tracecomp.eager_kernels import background as eager_background
from tracecomp.ir.parser import parse_graph
from tracecomp.ir.printer import print_graph
from tracecomp.passes.cost.machine import host
from tracecomp.runtime import program_cache

STEPS = 12


@pytest.fixture(autouse=True)
def _in_background(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Every program is large enough, and none is in the cache."""
    eager_background.finish()
    monkeypatch.setattr(eager_background, "MOST_WAITING", 0)  # its jobs are none of a test
    monkeypatch.setattr(background, "LEAST_SECONDS", 0.0)
    monkeypatch.setattr(
        config, "_process", replace(config._process, wait=False, cache_dir=str(tmp_path))
    )  # all threads
    yield
    background._compiler.end()
    background.begin_again()


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[Job]:
    """The jobs that are begun; nothing compiles them but ``deliver``."""
    found: list[Job] = []
    monkeypatch.setattr(background._compiler, "add", lambda job: found.append(job) or True)
    return found


def deliver(job: Job) -> None:
    """Do what the thread and the worker do."""
    for request in job.requests:
        sent = pickle.loads(pickle.dumps(request))
        job.found[request.key] = pickle.loads(pickle.dumps(compile_worker._answer(sent))).program
    job.done.set()


def training_step(seed: int) -> Callable[[], tc.Tensor]:
    """A training step with random numbers and state; it returns the loss."""
    tc.manual_seed(seed)
    width = 8 + seed % 8
    model = nn.Sequential(nn.Linear(6, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(0.3), nn.Linear(width, 2))
    optimizer = tc.optim.AdamW(model.parameters(), lr=1e-2)
    x, y = tc.randn(5, 6), tc.randn(5, 2)

    def step() -> tc.Tensor:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    step.__dict__["model"] = model
    return step


def run(step: Any, fn: Callable[[], Any], between: Callable[[int], object] = lambda _: None) -> list[bytes]:
    found = []
    for n in range(STEPS):
        between(n)
        found.append(fn().numpy().tobytes())
    return found + [p.detach().numpy().tobytes() for p in (*step.model.parameters(), *step.model.buffers())]


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(n, marks=pytest.mark.slow) for n in range(4, 1000))])
def test_results_are_the_same_whenever_the_program_is_ready(seed: int, jobs: list[Job]) -> None:
    eager = training_step(seed)
    expected = run(eager, eager)
    step = training_step(seed)
    compiled = tc.compile(step)
    at = Random(seed).randrange(2, STEPS)
    assert run(step, compiled, lambda n: [deliver(job) for job in jobs] if n == at else None) == expected
    assert len(jobs) == 1
    assert compiled.entries[0].calls() == STEPS - at


def test_a_program_compiled_by_the_worker_process() -> None:
    eager = training_step(1)
    expected = run(eager, eager)
    step = training_step(1)
    compiled = tc.compile(step)
    assert run(step, compiled, lambda n: compiled.wait() if n == 3 else None) == expected
    assert compiled.entries[0].calls() >= STEPS - 3
    assert "compiled in another process" in str(compiled.explain())


def test_backward_from_outside_runs_by_operators_until_its_program_is_ready(jobs: list[Job]) -> None:
    def gradients(between: Callable[[int], object], compile: Callable[[Any], Any]) -> list[bytes]:
        tc.manual_seed(2)
        layer = nn.Linear(4, 3)
        fn = compile(lambda x: layer(x).tanh().square().sum())
        found = []
        for n in range(8):
            between(n)
            layer.zero_grad()
            fn(tc.arange(8.0).reshape(2, 4)).backward()
            found.append(layer.weight.grad.numpy().tobytes())
        return found

    def between(n: int) -> None:
        if n in (3, 5):  # the forward program, then the backward one
            deliver(jobs[-1])

    assert gradients(between, tc.compile) == gradients(lambda _: None, lambda fn: fn)
    assert len(jobs) == 2


def test_programs_for_dynamic_sizes(jobs: list[Job]) -> None:
    compiled = tc.compile(lambda x: (x * 2).softmax(0), dynamic=True)
    for n in range(4, 40):
        x = tc.arange(float(n % 11 + 3))
        np.testing.assert_array_equal(compiled(x).numpy(), (x * 2).softmax(0).numpy())
        if n % 7 == 0:
            [deliver(job) for job in jobs if not job.done.is_set()]
    assert compiled.recordings <= 2
    assert compiled.entries[0].calls()


def gradients_of_sizes(compile: Callable[[Any], Any], between: Callable[[int], object], rows: list[int]) -> list[bytes]:
    """The bits of gradients of batches with so many rows."""
    tc.manual_seed(3)
    layer = nn.Linear(4, 3)
    fn = compile(lambda x: layer(x).tanh().square().mean())
    found = []
    for n, size in enumerate(rows):
        between(n)
        layer.zero_grad()
        fn(tc.linspace(-1, 1, 4 * size).reshape(size, 4)).backward()
        found.append(layer.weight.grad.numpy().tobytes())
    return found


@pytest.mark.parametrize("seed", range(6))
def test_backward_of_dynamic_sizes_runs_by_operators_until_its_program_is_ready(seed: int, jobs: list[Job]) -> None:
    """Each program is delivered at a random call, and sizes differ between calls."""
    random = Random(seed)
    rows = [random.randint(2, 40) for _ in range(40)]
    made: list[Any] = []

    def compile(fn: Any) -> Any:
        made.append(tc.compile(fn, dynamic=True))
        return made[-1]

    def between(n: int) -> None:
        if random.random() < 0.3:
            [deliver(job) for job in jobs if not job.done.is_set()]

    found = gradients_of_sizes(compile, between, rows)
    assert found == gradients_of_sizes(lambda fn: fn, lambda n: None, rows)
    assert any("backward" in job.name for job in jobs)
    backward = [b for entry in made[0].entries if entry.plan for b in entry.plan.backends[1:]]
    assert any(backend.made for backend in backward)


def test_a_failed_backward_of_dynamic_sizes_stays_eager(jobs: list[Job]) -> None:
    """One warning, and the bits of eager mode."""
    rows = [5, 9, 5, 9, 5, 9, 7, 5, 9, 11, 30]

    def between(n: int) -> None:
        for job in (job for job in jobs if not job.done.is_set()):
            if "backward" in job.name:
                job.error = "CompileError: pass fusion failed"
                job.done.set()
            else:
                deliver(job)

    expected = gradients_of_sizes(lambda fn: fn, lambda n: None, rows)
    with pytest.warns(UserWarning, match="cannot be compiled: CompileError") as told:
        assert gradients_of_sizes(lambda fn: tc.compile(fn, dynamic=True), between, rows) == expected
    assert len(told) == 1


def test_a_function_in_parts(jobs: list[Job]) -> None:
    seen = []

    def fn(x: tc.Tensor) -> tc.Tensor:
        y = x.sin() * 2
        seen.append(str(y.sum().item() > 0 and time.time() > 0))
        return y.cos()

    x = tc.arange(5.0)
    compiled = tc.compile(fn)
    with pytest.warns(UserWarning, match="graph break"):
        compiled(x), compiled(x)
    for _ in range(8):
        np.testing.assert_array_equal(compiled(x).numpy(), fn(x).numpy())
        [deliver(job) for job in jobs if not job.done.is_set()]


def test_hottest_first() -> None:
    """The function that has waited longest is compiled first."""
    compiler = background._Compiler()
    order = []

    def compile(job: Job) -> None:
        order.append(job.name)
        time.sleep(0.01)

    compiler._compile = compile  # type: ignore[method-assign]
    made = [Job(f"{n}", [], waited=n) for n in (0.0, 1.0, 5.0, 3.0)]
    with compiler._lock:  # the thread waits until all are there
        for job in made:
            compiler.add(job)
    for job in made:
        assert job.done.wait(10)
    assert order == ["5.0", "3.0", "1.0", "0.0"]


def test_equal_graphs_are_compiled_on_both_sides() -> None:
    """The other process makes the same graph from the request, with the lines and scopes of its nodes."""
    step = training_step(0)
    loop = tc.trace(lambda x: tc.scan(lambda c, x: (c * 2 + x, c.sin()), tc.zeros(3), x), tc.ones(4, 3))
    for graph in (tc.trace(step), loop, *(parse_graph(recorded.graph) for recorded in corpus.load())):
        request = pickle.loads(pickle.dumps(compile_worker.Request.of(graph, {}, frozenset())))
        again = request.graph.unpacked()
        assert print_graph(again, comments=True) == print_graph(graph, comments=True)
        assert program_cache.key_of(again, host()) == request.key


def test_another_version_of_the_sources_compiles_nothing(jobs: list[Job], monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker would make other code: the call compiles in place."""
    x = tc.arange(4.0)
    compiled = tc.compile(lambda x: x.exp() + 1)
    compiled(x), compiled(x)
    [job] = jobs
    with monkeypatch.context() as patch:
        patch.setattr(program_cache, "_sources", lambda: "other")
        [request] = job.requests
        assert compile_worker._answer(request) == compile_worker.Answer()
    job.done.set()
    np.testing.assert_array_equal(compiled(x).numpy(), (x.exp() + 1).numpy())
    assert compiled.entries[0].calls() == 1


def test_a_failure_is_reported_once_and_calls_stay_eager(jobs: list[Job]) -> None:
    x = tc.arange(4.0)
    compiled = tc.compile(lambda x: x.exp() + 1)
    compiled(x), compiled(x)
    jobs[0].error = "CompileError: pass fusion failed\nreproduce with: python /tmp/script.py"
    jobs[0].done.set()
    with pytest.warns(
        UserWarning, match="cannot be compiled: CompileError.*\n.*script.py.*Its calls run eagerly"
    ) as told:
        for _ in range(3):
            np.testing.assert_array_equal(compiled(x).numpy(), (x.exp() + 1).numpy())
    assert len(told) == 1
    assert "cannot be compiled" in str(compiled.explain())


def test_without_processes_calls_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    x = tc.arange(4.0)
    with pytest.warns(RuntimeWarning, match="cannot be compiled in another process: .*unavailable") as told:
        for _ in range(2):
            compiled = tc.compile(lambda x: x.exp() + 1)
            compiled(x), compiled(x)
            if compiled.entries[0].job is not None:
                compiled.entries[0].job.done.wait(10)
            compiled(x)
            assert compiled.entries[0].calls()
    assert len(told) == 1


@pytest.mark.parametrize("seed", range(3))
def test_a_worker_that_is_killed_is_replaced(seed: int) -> None:
    """At random moments; the program arrives all the same."""
    eager = training_step(seed)
    expected = run(eager, eager)
    step = training_step(seed)
    compiled = tc.compile(step)
    random = Random(seed)

    def kill() -> None:
        for _ in range(background.MOST_ATTEMPTS - 1):
            time.sleep(random.random() * 0.3)
            if (worker := background._compiler._worker) is not None:
                os.kill(worker._process.pid, signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    found = run(step, compiled, lambda n: compiled.wait() if n == 6 else time.sleep(0.05))
    thread.join()
    assert found == expected
    assert compiled.eager_because is None
    assert compiled.entries[0].calls() >= STEPS - 6  # or more, if the program was ready before it was waited for


def test_a_worker_that_always_dies_leaves_calls_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "_WORKER", "import sys; sys.exit(3)")
    x = tc.arange(4.0)
    compiled = tc.compile(lambda x: x.exp() + 1)
    compiled(x), compiled(x)
    with pytest.warns(UserWarning, match="has ended 3 times, last with 3"):
        compiled.wait()
    np.testing.assert_array_equal(compiled(x).numpy(), (x.exp() + 1).numpy())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_has_a_compiler_of_its_own() -> None:
    step = training_step(4)
    compiled = tc.compile(step)
    compiled(), compiled()
    child = os.fork()
    if not child:
        try:
            compiled()  # the parent's job is lost here
            compiled.wait()
            before = compiled.entries[0].calls()
            compiled()
            os._exit(0 if compiled.entries[0].calls() == before + 1 else 1)
        finally:
            background._compiler.end()
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    compiled.wait()
    assert compiled.entries[0].job is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_workers_of_a_data_loader_compile_for_themselves() -> None:
    """They are forked while the program is compiled; nothing remains of their compilers."""
    compiled = tc.compile(lambda x: (x * 3).sin())

    class Rows(tc.utils.data.Dataset[tuple[tc.Tensor, int]]):
        def __len__(self) -> int:
            return 8

        def __getitem__(self, n: int) -> tuple[tc.Tensor, int]:
            row = compiled(tc.full((3,), float(n)))
            compiled.wait()
            worker = background._compiler._worker
            return row, 0 if worker is None else worker._process.pid

    compiled(tc.ones(3)), compiled(tc.ones(3))
    found = list(tc.utils.data.DataLoader(Rows(), batch_size=2, num_workers=2))
    rows = tc.cat([rows for rows, _ in found])
    expected = (tc.arange(8.0)[:, None].expand(8, 3) * 3).sin()
    assert rows.numpy().tobytes() == expected.numpy().tobytes()
    pids = {int(pid) for _, each in found for pid in each} - {0}
    assert pids and all(map(_ends, pids))
    compiled.wait()
    assert compiled.entries[0].job is None


def test_nothing_remains_of_a_process_that_ends(tmp_path: Path) -> None:
    """It ends while the worker compiles: normally, by Ctrl-C, or by a signal, as a kernel that a notebook restarts."""
    program = textwrap.dedent("""
        import os, signal, sys, time, warnings
        import tracecomp as tc
        from tracecomp.compiled import background
        background.LEAST_SECONDS = 0.0
        def fn(x):
            for _ in range(300):
                x = (x * 1.5).sin()
            return x
        compiled = tc.compile(fn)
        compiled(tc.ones(3)), compiled(tc.ones(3))
        while background._compiler._worker is None:
            time.sleep(0.01)
        print(background._compiler._worker._process.pid, flush=True)
        if sys.argv[1] != "end":
            os.kill(os.getpid(), int(sys.argv[1]))
    """)
    for how in ("end", f"{signal.SIGKILL:d}", f"{signal.SIGTERM:d}", f"{signal.SIGINT:d}"):
        env = {**os.environ, "TRACECOMP_WAIT": "0", "TRACECOMP_CACHE_DIR": str(tmp_path / how)}
        ended = subprocess.run(
            [sys.executable, "-c", program, how], env=env, capture_output=True, text=True, timeout=60
        )
        assert _ends(int(ended.stdout)), how


def _ends(pid: int) -> bool:
    """Whether a process ends soon."""
    deadline = time.monotonic() + 10
    while _runs(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not _runs(pid)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_calls_from_several_threads(jobs: list[Job]) -> None:
    compiled = tc.compile(lambda x: (x * 3).sin())
    x = tc.arange(64.0)
    expected = (x * 3).sin().numpy().tobytes()
    wrong = []

    def call() -> None:
        for _ in range(50):
            if compiled(x).numpy().tobytes() != expected:
                wrong.append(1)

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    while not jobs:
        time.sleep(0.001)
    deliver(jobs[0])
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(jobs) == 1


def test_waiting_shows_the_steps_of_the_job(jobs: list[Job], monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal; the steps are cleared when the program is ready."""
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    monkeypatch.setattr(progress, "_AGAIN", 0.0)
    compiled = tc.compile(lambda x: (x * 3).sin(), backend="native")
    compiled(tc.ones(3)), compiled(tc.ones(3))
    [job] = jobs
    steps = iter([Steps(1, 8, "simplify"), Steps(5, 8, "fusion")])

    def wait(timeout: float | None) -> bool:
        """The compiler's thread continues while this one waits."""
        assert timeout == background._SHOW_SECONDS
        job.steps = next(steps, job.steps)
        if job.steps.done == 5 and "5/8" in terminal.getvalue():
            deliver(job)
        return job.done.is_set()

    with monkeypatch.context() as patch:
        patch.setattr(job, "done", SimpleNamespace(wait=wait, is_set=job.done.is_set, set=job.done.set))
        compiled.wait()
    *shown, last = terminal.getvalue().split("\r\033[K")
    assert last == ""
    counts = [line.split("] ")[1].split()[0] for line in shown if "in another process: [" in line]
    assert list(dict.fromkeys(counts)) == ["1/8", "5/8"]
    assert compiled.entries[0].job is None


def test_the_worker_tells_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """In order, before the answer."""
    monkeypatch.setattr(compile_worker, "_TELL_SECONDS", 0.0)
    here, there = Pipe()
    request = compile_worker.Request.of(tc.trace(lambda x: (x * 3).sin(), tc.ones(3)), {}, frozenset())
    teller = compile_worker._Teller(there)
    there.send(compile_worker._answer(request, teller.tell))
    told = []
    while not isinstance(received := here.recv(), compile_worker.Answer):
        told.append(received)
    assert received.program
    assert [s.done for s in told] == list(range(1, len(told) + 1)) and told[-1].total >= len(told) > 10


def test_calls_that_wait(jobs: list[Job]) -> None:
    x = tc.arange(4.0)
    compiled = tc.compile(lambda x: x.exp() + 1, wait=True)
    compiled(x), compiled(x)
    assert compiled.entries[0].calls() == 1
    assert not jobs
