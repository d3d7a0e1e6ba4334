"""Who computed what, for tests: every forward of every process, by step, leaf and attempt.

Owns ``CountForwards`` (an observer's maker) and ``forwards``, which reads what all processes of a
run wrote.  Each line is written before the forward runs, so that a killed process's count too.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from torch import nn

from danaus.actor.process_runtime import context
from danaus.core import journal
from danaus.core.journal import Journal
from danaus.ft.ledger import Committed
from danaus.ft.observer import Observer
from danaus.ft.work import StepResult
from danaus.quorum.messages import Epoch
from danaus.train.replica import ReplicaWork
from danaus.wire.position import Phase

Attempt = tuple[int, str]
"""A try of a step: the step, and the epoch in which it was tried."""


class CountForwards:
    """Makes an observer that writes down each forward of its process."""

    def __call__(self, work: ReplicaWork) -> Observer:
        return _Counter(work)


class _Counter(Observer):
    def __init__(self, work: ReplicaWork) -> None:
        name = str(work.place.member).replace("/", "-")
        self._journal = Journal(Path(context().proc.run_dir) / "forwards" / f"{name}.jsonl")
        self._at = (0, 0)
        work.trainer.network.register_forward_pre_hook(self._forward)

    def entered(self, step: int, phase: Phase, number: int) -> None:
        if phase is Phase.COMPUTE:
            self._at = (step, number)

    def _forward(self, _network: nn.Module, _inputs: Any) -> None:
        self._journal.record("forward", step=self._at[0], leaf=self._at[1])

    def committed(self, line: Committed, result: StepResult) -> None:
        self._journal.record("settled", step=line.step, epoch=str(line.epoch))

    def discarded(self, step: int, epoch: Epoch, reason: str) -> None:
        self._journal.record("settled", step=step, epoch=str(epoch))


def forwards(run_dir: Path) -> tuple[dict[Attempt, Counter[int]], int]:
    """Return how often each leaf went through the network, by attempt, over all processes.

    Also how many forwards were those of processes that died in the attempt.
    """
    counts: dict[Attempt, Counter[int]] = defaultdict(Counter)
    num_cut_short = 0
    for path in (run_dir / "forwards").glob("*.jsonl"):
        waiting: list[tuple[int, int]] = []
        for line in journal.read(path):
            if line["event"] == "forward":
                waiting.append((line["step"], line["leaf"]))
                continue
            mine = [leaf for step, leaf in waiting if step == line["step"]]
            counts[line["step"], line["epoch"]].update(mine)
            waiting = []
        num_cut_short += len(waiting)
    return dict(counts), num_cut_short
