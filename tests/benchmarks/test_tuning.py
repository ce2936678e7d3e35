"""The command that tries other values of tuned numbers."""

from __future__ import annotations

import re
from dataclasses import fields

import pytest

from benchmarks import tuning
from tracecomp.passes.cost.machine import host
from tracecomp.passes.cost.tuning import Tuning


def test_every_field_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert tuning.main([]) == 0
    assert [line.split(" = ")[0] for line in capsys.readouterr().out.splitlines()] == [f.name for f in fields(Tuning)]


def test_programs_whose_loops_change_are_timed_and_their_bits_compared() -> None:
    programs = {"softmax": (tuning.PROGRAMS["softmax"][0], ((40, 20),)), "sum": (lambda x: x.sum(), ((9,),))}
    [(name, line)] = tuning.compared(host().tuned(four_rows_bytes=8, two_rows_bytes=8), 1, programs)
    assert name == "softmax" and re.fullmatch(r" *[\d.]+ ms, ratio [\d.]+", line)
    assert tuning.compared(host(), 1, programs) == [("", "changes none of the programs")]
