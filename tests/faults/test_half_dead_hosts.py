"""Hosts of which a part lives on: cut off with others, or accepting connections and no more."""

from __future__ import annotations

import os
import signal

import pytest
from tests.faults.lab_runs import lab_run, pid_here, processes_of

from danaus.app.events import Event
from danaus.testing.lab import CONTROLLER, missing

pytestmark = [
    pytest.mark.skipif(bool(missing()), reason=missing()),
    pytest.mark.slow,
    pytest.mark.timeout(300),
]


def lost(run, host):
    """Return when a host of the run was lost."""
    return [line for line in run.watch.events(Event.HOST_LOST) if line["host"].startswith(host)]


def test_the_side_without_the_service_waits_however_large_and_says_so(tmp_path, undisturbed):
    with lab_run(tmp_path, 3, hang_limit_s=None) as run:
        lab, watch = run.lab, run.watch
        run.full()
        for host in ("host2", "host3"):
            for other in (CONTROLLER, "host1"):
                lab.cut(host, other)
        watch.until_members(1, limit_s=60)
        watch.until_moved(5, limit_s=60)
        for replica in (1, 2):
            watch.until(
                "the other side to say what it waits for",
                lambda replica=replica: "cut off from the quorum service" in run.log(replica),
                40,
            )
        lab.heal()
        run.full()
        assert run.finish().sha256 == undisturbed(run.going.run)
        ended = {line["replica"] for line in watch.events("quorum_death", incarnation=0)}
        assert ended >= {"replica-1", "replica-2"}, "they were ended before they took part again"
        assert not watch.events(Event.RUN_RESUMED)


def test_what_accepts_connections_and_never_answers_is_lost_like_what_is_silent(
    tmp_path, undisturbed
):
    with lab_run(tmp_path, 3, hang_limit_s=None) as run:
        lab, watch = run.lab, run.watch
        run.full()
        # An agent alone: the workers of its host go on until it is replaced.
        where = {"host": f"host1 at {lab.listening('host2')}"}
        os.kill(pid_here(run, "host2", Event.HOST_JOINED, **where), signal.SIGSTOP)
        (line,) = watch.until("its host to be lost", lambda: lost(run, "host1 "), 40)
        assert "it accepts connections and does not answer" in line["reason"]
        watch.until_members(2, limit_s=60)
        run.full()
        # A worker alone: peers and service still reach its machine.
        worker = pid_here(run, "host1", Event.PROCESS_STARTED, replica="replica-0")
        os.kill(worker, signal.SIGSTOP)
        watch.until_members(2, limit_s=60)
        assert ("replica-0", 0) in watch.deaths(), "it was ended, as it was stopped or silent"
        run.full()
        # All of a host.
        stopped = processes_of(lab, "host3")
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        watch.until_members(2, limit_s=60)
        watch.until(
            "what is waited for",
            lambda: [why for why in run.said(Event.HOST_WAITED_FOR) if "does not answer" in why],
            40,
        )
        assert "it accepts connections and does not answer" in run.said(Event.HOST_WAITED_FOR)[-1]
        for pid in reversed(stopped):
            os.kill(pid, signal.SIGCONT)
        run.full()
        assert run.finish().sha256 == undisturbed(run.going.run)
        assert not watch.events(Event.RUN_RESUMED)
