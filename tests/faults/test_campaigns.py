"""Campaigns on real runs: what a plan says strikes, and all ends with the undisturbed bits."""

from __future__ import annotations

import dataclasses
import threading

import pytest

from danaus.app.campaign import Campaign
from danaus.app.chaos import Fleet
from danaus.app.chaos_log import read_record
from danaus.app.chaos_record import replay
from danaus.testing import FaultPlan
from danaus.testing.faults import Pace
from danaus.testing.runs import Shape, running, small_run

SHAPE = Shape(replicas=3, leaves=3, steps=400)
STEP_S = 0.3
OUTSIDE = (
    "kill", "hang", "kill_coordinator", "kill_nursery", "kill_host_agent", "kill_host",
    "slow:for=1s,amount=4x", "preempt", "hang:process=coordinator,for=500ms",
)  # fmt: skip


@pytest.fixture
def paced(tmp_path):
    """Return a run whose steps take their time until the file ``fast`` is there."""

    def make(plan, name="run", shape=SHAPE, **more):
        pace = Pace(STEP_S, until=tmp_path / "fast")
        observers = {f"replica-{n}": (pace,) for n in range(SHAPE.replicas)}
        return small_run(tmp_path / name, shape, observers=observers, chaos=plan, **more)

    return make


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_run_survives_all_that_signals_can_do_to_it(paced, undisturbed, tmp_path):
    guarded = [f"{each}{',' if ':' in each else ':'}all_back=true" for each in OUTSIDE]
    run = paced(FaultPlan.parse(*guarded, seed=4))
    with running(run) as going:
        watch = going.watch
        watch.until("all faults", lambda: len(watch.strikes()) == len(OUTSIDE), limit_s=180)
        assert not watch.events("fault_missed")
        (tmp_path / "fast").touch()
        assert going.result(60).sha256 == undisturbed(run)
    struck = replay(read_record(run.folder.path / "chaos" / "1.jsonl")).faults
    assert [each["spec"] for each in watch.strikes()] == list(FaultPlan(struck).specs)
    assert not watch.events("run_resumed"), "somebody was always alive"


INSIDE = (
    "segv:replica=1,at_step=4",
    "kill:replica=2,at_step=12,at_phase=vote",
    "flip_bit:after=20steps,all_back=true",
)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_victim_strikes_itself_in_the_step_that_was_named_or_when_it_is_asked(
    paced, undisturbed, tmp_path
):
    run = paced(FaultPlan.parse(*INSIDE))
    with running(run) as going:
        watch = going.watch
        watch.until("all faults", lambda: len(watch.strikes()) == len(INSIDE), limit_s=90)
        watch.until_members(3)
        (tmp_path / "fast").touch()
        assert going.result(60).sha256 == undisturbed(run)
    assert [(each["kind"], each["step"]) for each in watch.strikes()[:2]] == [
        ("segv", 4),
        ("kill", 12),
    ]
    assert not watch.events("fault_missed")


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_victim_that_dies_before_its_step_is_struck_in_its_next_life(
    paced, undisturbed, tmp_path
):
    """As ``danaus chaos`` does it: it tells the controller, which tells each life of a victim."""
    run = paced(None, shape=dataclasses.replace(SHAPE, steps=80))
    plan = FaultPlan.parse("nan:replica=1,at_step=40", "kill:replica=1")
    with running(run) as going:
        going.watch.until_members(3, limit_s=60)
        with Campaign(run.folder, plan, Fleet.of(range(SHAPE.replicas))) as campaign:
            campaign.tell_planned()
            campaign.run(threading.Event(), lambda: going.launched.wait(0.0))
            assert (campaign.striker.num_struck, campaign.striker.num_missed) == (2, 0)
        (tmp_path / "fast").touch()
        assert going.result(60).sha256 == undisturbed(run)
    kill, nan = going.watch.strikes()
    assert (kill["kind"], kill["incarnation"]) == ("kill", 0)
    assert (nan["kind"], nan["incarnation"]) == ("nan", 1)
    assert nan["step"] >= 40
