"""``danaus lighthouse --standby`` takes over from the service of a run of ``danaus train``."""

from __future__ import annotations

import os
import signal

import pytest
from tests.procs.cli.terminal import Command

from danaus.app.door import Door
from danaus.app.events import Event
from danaus.app.settings import QuorumConfig
from danaus.testing.faults import Pace
from danaus.testing.runs import Shape, running, small_run

AWAY_S = 600.0


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_it_leads_where_the_runs_own_service_is_gone_and_the_bits_stay(
    tmp_path, tmp_path_factory, undisturbed
):
    address = f"unix:{tmp_path_factory.mktemp('q')}/s"
    pace = Pace(0.3, until=tmp_path / "fast")
    run = small_run(
        tmp_path / "run",
        Shape(replicas=2, leaves=2, steps=60),
        observers={f"replica-{n}": (pace,) for n in range(2)},
        quorum=QuorumConfig(standby=(address,)),
    )
    words = ("lighthouse", f"--run={tmp_path}/run", "--standby", f"--listen={address}")
    with running(run) as going, Command(tmp_path, *words) as standby:
        watch = going.watch
        watch.until_members(2, limit_s=60)
        standby.wait_for("stands by")
        Door(run.folder).hold_service(AWAY_S)  # as where its machine is gone
        os.kill(watch.service_pid(), signal.SIGKILL)
        standby.wait_for(r"leads at .*, in term 2")
        (victim,) = watch.events(Event.PROCESS_STARTED, replica="replica-1")
        os.kill(victim["pid"], signal.SIGKILL)
        watch.until(
            "it takes part again",
            lambda: any(
                "replica-1/0#1" in line["members"] and line["epoch"].startswith("2.")
                for line in watch.events(Event.QUORUM_ANNOUNCED)
            ),
            limit_s=60,
        )
        (tmp_path / "fast").touch()
        assert going.result(90).sha256 == undisturbed(run)
