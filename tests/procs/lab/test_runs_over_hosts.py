"""A run over a lab's hosts, TLS and all, through real cuts: of a host, and of the controller."""

from __future__ import annotations

from pathlib import Path

import pytest

from danaus.actor.here import shutdown_context
from danaus.app.events import Event
from danaus.app.lab import host_agent
from danaus.testing.faults import Pace
from danaus.testing.lab import CONTROLLER, Lab
from danaus.testing.runs import Shape, plain_sha256, running, small_run

SHAPE = Shape(replicas=3, leaves=3, steps=120)
STEP_S = 0.4


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_cut_host_comes_back_and_a_cut_controller_is_not_missed(tmp_path: Path) -> None:
    with Lab(hosts=3, folder=tmp_path, agent=host_agent()) as lab:
        pace = Pace(STEP_S, until=tmp_path / "fast")
        run = small_run(
            tmp_path / "run",
            SHAPE,
            observers={f"replica-{n}": (pace,) for n in range(SHAPE.replicas)},
            hosts=tuple(f"tcp:{lab.address(host)}:{lab.plan.port}" for host in lab.hosts),
            secret=lab.secret_path,
        )
        with running(run) as going:
            watch = going.watch
            watch.until_members(3, limit_s=90)
            # Training goes on without the controller and the quorum service; nobody is fenced.
            lab.cut(CONTROLLER)
            watch.until("the cut to be noticed", lambda: watch.events(Event.CUT_OFF), 40)
            watch.until_moved(4)
            assert watch.num_members == 3
            lab.heal()
            watch.until("hosts to answer", lambda: watch.events(Event.REACHED_AGAIN), 40)
            watch.until_moved(4)
            assert not watch.events(Event.PROCESS_EXITED)
            # One host alone: the others go on, and it is joined again once it answers.
            lab.cut(lab.hosts[1])
            watch.until_members(2, limit_s=60)
            watch.until("it to be waited for", lambda: watch.events(Event.HOST_WAITED_FOR), 40)
            lab.heal()
            watch.until_members(3, limit_s=90)
            (tmp_path / "fast").touch()
            result = going.result(120)
        assert result.sha256 == plain_sha256(run.config)
        assert [line["replica"] for line in watch.events(Event.PROCESS_EXITED)] == ["replica-1"]
        assert not watch.events(Event.RUN_RESUMED)
    shutdown_context()
