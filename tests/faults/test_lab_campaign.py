"""A campaign against a run across hosts with networks of their own: real cuts and real crashes."""

from __future__ import annotations

import dataclasses

import pytest

from danaus.app.lab import host_agent
from danaus.testing import FaultPlan
from danaus.testing.faults import Pace
from danaus.testing.lab import Lab, missing
from danaus.testing.runs import Shape, running, small_run

SHAPE = Shape(replicas=3, leaves=3, steps=400)
STEP_S = 0.4
FAULTS = (
    "partition:host=1,for=2s",
    "partition:host=2,peer=0,one_way=true,for=1s",
    "loss:host=0,amount=5%,for=2s",
    "delay:host=1,amount=20ms,for=2s",
    "kill:replica=2",
    "kill_nursery:host=0",
    "kill_host_agent:host=1",
    "kill_host:host=2,for=3s",
)


@pytest.mark.skipif(bool(missing()), reason=missing())
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_run_across_hosts_survives_what_networks_do_to_it(tmp_path, undisturbed):
    plan = FaultPlan.parse(*(f"{each},all_back=true" for each in FAULTS))
    with Lab(hosts=3, folder=tmp_path / "labs", agent=host_agent()) as lab:
        pace = Pace(STEP_S, until=tmp_path / "fast")
        run = small_run(
            tmp_path / "run",
            SHAPE,
            observers={f"replica-{n}": (pace,) for n in range(SHAPE.replicas)},
            chaos=plan,
            hosts=tuple(lab.plan.listening(host) for host in lab.plan.hosts),
            secret=lab.secret_path,
        )
        with running(dataclasses.replace(run, labs=tmp_path / "labs")) as going:
            watch = going.watch
            watch.until("all faults", lambda: len(watch.strikes()) == len(FAULTS), limit_s=240)
            watch.until_members(3, limit_s=90)
            (tmp_path / "fast").touch()
            assert going.result(90).sha256 == undisturbed(run)
    assert not watch.events("fault_missed")
    assert not watch.events("run_resumed"), "somebody was always alive"
