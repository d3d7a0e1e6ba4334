"""What a bench is held against ends with the bench."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from danaus.actor.procfs import children_of
from danaus.core.clock import Deadline
from danaus.testing.hosts import Watched

LIMIT_S = 20.0
BENCH = "from danaus.app.plain_ddp import plain_tokens_per_s as f; f('debug', 2, 100_000)"


def _ranks_of(pid: int) -> list[int]:
    deadline = Deadline.after(LIMIT_S)
    while len(children_of(pid)) < 2 and not deadline.passed:
        os.sched_yield()
    return children_of(pid)


def test_the_ranks_die_with_whoever_started_them() -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3] / "src")}
    with subprocess.Popen([sys.executable, "-c", BENCH], env=environment) as bench:
        ranks = [Watched(pid) for pid in _ranks_of(bench.pid)]
        bench.kill()
    assert len(ranks) == 2
    assert all(rank.ends_within(LIMIT_S) for rank in ranks)
    for rank in ranks:
        rank.close()
