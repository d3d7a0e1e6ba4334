"""Networks that are cut, by real packet drops: nobody hangs, nobody is lost, the bits stay."""

from __future__ import annotations

import pytest
from tests.faults.lab_runs import lab_run

from danaus.app.events import Event
from danaus.testing.lab import Link, missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())

SLOW = Link(delay_s=0.05, loss=0.01)


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
        assert "its machine does not answer" in run.said(Event.HOST_WAITED_FOR)[-1]
        lab.start("host1")
        run.full()
        assert run.finish().sha256 == undisturbed(run.going.run)
