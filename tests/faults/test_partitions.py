"""Networks that are cut, by real packet drops: nobody hangs, nobody is lost, the bits stay."""

from __future__ import annotations

import pytest
from tests.faults.lab_runs import lab_run

from danaus.app.events import Event
from danaus.testing.lab import CONTROLLER, Link, missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())

SLOW = Link(delay_s=0.05, loss=0.01)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_hosts_that_do_not_reach_each_other_or_are_slow_or_crash(tmp_path, undisturbed):
    with lab_run(tmp_path, 3) as run:
        lab, watch = run.lab, run.watch
        run.full()
        # Two hosts do not reach each other; both are heard by the service.
        lab.cut("host2", "host3", one_way=True)
        watch.until_members(2, limit_s=60)
        why = run.said(Event.QUORUM_ANNOUNCED)[-1]
        assert "replica-2 is out of reach of replica-1 (their machines do not" in why
        told = len(watch.events(Event.QUORUM_ANNOUNCED))
        watch.until_moved(20, limit_s=60)
        assert len(watch.events(Event.QUORUM_ANNOUNCED)) - told <= 4, "they train, and try it once"
        lab.heal()
        run.full()
        # A slow network that loses frames: nobody is evicted.
        lab.link("host2", SLOW)
        watch.until_moved(8, limit_s=60)
        assert watch.num_members == 3
        lab.heal()
        assert not watch.events(Event.HANG_NOTICED), "all have lived, and so they were treated"
        assert not watch.events(Event.PROCESS_EXITED, expected=False)
        # A host crashes: it falls silent, and all that it had is gone.
        lab.crash("host1")
        watch.until_members(2, limit_s=60)
        watch.until("it to be waited for", lambda: watch.events(Event.HOST_WAITED_FOR), 40)
        for event in (Event.HOST_LOST, Event.HOST_WAITED_FOR):
            assert "its machine does not answer" in run.said(event)[-1]
        lab.start("host1")
        run.full()
        assert run.finish().sha256 == undisturbed(run.going.run)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_host_that_is_cut_off_one_way_is_left_behind_and_comes_back(tmp_path, undisturbed):
    with lab_run(tmp_path, 3, hang_limit_s=None) as run:
        lab, watch = run.lab, run.watch
        run.full()
        for times, (start, end) in enumerate((("host2", CONTROLLER), (CONTROLLER, "host2"))):
            lab.cut(start, end, one_way=True)
            watch.until_members(2, limit_s=60)
            watch.until("it to be lost", lambda n=times: watch.events(Event.HOST_LOST)[n:], 40)
            watch.until_moved(5)
            lab.heal()
            run.full()
        assert run.finish().sha256 == undisturbed(run.going.run)
        assert {
            line["replica"] for line in watch.events(Event.PROCESS_EXITED, kind="host_lost")
        } == {"replica-1"}
        assert not watch.events(Event.HANG_NOTICED)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_nobody_is_evicted_for_a_network_that_is_slow(tmp_path, undisturbed):
    with lab_run(tmp_path, 3, steps=60, hang_limit_s=None) as run:
        run.full()
        run.lab.link("host1", Link(delay_s=0.1, loss=0.02))
        run.lab.link("host2", Link(rate_mbit=5))
        run.watch.until_moved(20, limit_s=120)
        run.lab.heal()
        assert run.finish().sha256 == undisturbed(run.going.run)
        assert not run.watch.events(Event.PROCESS_EXITED, expected=False)
        assert not run.watch.events(Event.HANG_NOTICED)
        assert len(run.watch.events(Event.QUORUM_ANNOUNCED)) == 2, "the first, and the end"
