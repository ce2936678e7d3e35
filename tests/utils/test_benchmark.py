"""Timed statements: the times, their descriptions, and the tables."""

from __future__ import annotations

import pickle

import pytest

from tracecomp.utils import benchmark
from tracecomp.utils.benchmark import Compare, Measurement, TaskSpec, Timer


def measured(label: str, row: str, column: str, times: list[float], threads: int = 1) -> Measurement:
    return Measurement(2, times, TaskSpec("x", "pass", "", label, row, column, None, threads))


def test_a_statement_is_timed() -> None:
    counted: list[int] = []
    timer = Timer("counted.append(1)", globals={"counted": counted}, label="append", num_threads=1)
    once = timer.timeit(50)
    assert len(counted) == 52 and once.number_per_run == 50 and len(once.times) == 1
    many = timer.blocked_autorange(min_run_time=0.01)
    assert sum(many.raw_times) >= 0.01 and many.median > 0 and many.label == "append"
    assert pickle.loads(pickle.dumps(many)).times == many.times
    assert Timer("torch.ones(2)").timeit(1).mean > 0


def test_what_a_measurement_says() -> None:
    m = measured("add", "4", "plus", [2e-6, 4e-6, 6e-6, 8e-6])
    assert m.median == pytest.approx(2.5e-6)
    assert m.iqr == pytest.approx(1.5e-6)
    lines = repr(m).splitlines()[1:]
    assert lines[:5] == [
        "add: 4", "plus", "  Median: 2.50 us", "  IQR:    1.50 us (1.75 to 3.25)",
        "  4 measurements, 2 runs per measurement, 1 thread",
    ]  # fmt: skip
    assert "Interquartile range is 60.0%" in lines[5]
    assert benchmark.select_unit(3e-5) == ("us", 1e-6) and benchmark.trim_sigfig(3.14159, 2) == pytest.approx(3.1)
    assert [x.times for x in Measurement.merge([m, m])] == [m.times * 2]


def test_a_table_has_a_row_for_each_label_and_a_column_for_each_description() -> None:
    table = Compare([measured("add", "4", "plus", [2e-6] * 4), measured("add", "400", "fn", [4e-6] * 4, threads=2)])
    assert str(table) == (
        "[--------- add ----------]\n"
        "           |  plus  |   fn\n"
        "1 threads: ---------------\n"
        "      4    |  1.0   |     \n"
        "2 threads: ---------------\n"
        "      400  |        |  2.0\n"
        "\nTimes are in microseconds (us).\n"
    )
    with pytest.raises(ValueError, match="Expected an instance of `Measurement`"):
        table.extend_results([3])  # type: ignore[list-item]


def test_what_is_not_timed_says_so() -> None:
    with pytest.raises(NotImplementedError, match="only Python statements"):
        Timer("x", language="c++")
    with pytest.raises(NotImplementedError, match="counting instructions is not supported"):
        Timer("x").collect_callgrind()
