"""Metrics are lines with rates over what this process itself saw."""

from __future__ import annotations

from pathlib import Path

from danaus.testing.clock import ManualClock
from danaus.train.metrics import Metrics, read_metrics
from danaus.train.trainer import StepResult


def result(step: int) -> StepResult:
    return StepResult(step=step, loss=2.5, grad_norm=1.5, num_tokens=100, lr=0.1)


def test_rates_are_between_neighbouring_steps(tmp_path: Path) -> None:
    clock = ManualClock()
    with Metrics(tmp_path / "metrics" / "r0.jsonl", clock) as metrics:
        metrics.record(result(1), num_replicas=3)
        clock.advance(0.5)
        metrics.record(result(2))
        clock.advance(9.0)
        metrics.record(result(7))  # it learned steps 3 to 6 from a peer
        assert metrics.num_lost == 0
    lines = read_metrics(tmp_path / "metrics" / "r0.jsonl")
    assert [line["step"] for line in lines] == [1, 2, 7]
    assert [line.get("tokens_per_s") for line in lines] == [None, 200.0, None]
    assert (lines[0]["loss"], lines[0]["num_replicas"]) == (2.5, 3)
