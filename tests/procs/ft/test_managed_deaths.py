"""Replicas under ``Manager`` die at the worst moments; the others agree, and the lost one heals."""

from __future__ import annotations

import signal

import pytest
from tests.procs.ft.forked_run import Run, end
from tests.procs.ft.managed_parts import HOLD, STEPS

pytestmark = pytest.mark.timeout(180)
FATAL = HOLD + 1


class ManagedRun(Run):
    script = ("forking.py", "managed_parts")
    limit_s = 150.0


@pytest.fixture
def run(tmp_path):
    started = ManagedRun(tmp_path / "run")
    yield started
    started.close()


def begin(run, mode="lives"):
    for name, how in (("a", "lives"), ("b", mode), ("c", "lives")):
        run.start(name, how)
    run.all_say(f"committed {HOLD} by 3", *"abc")
    run.open_gate()


def outcomes(run, name, step):
    words = [line.split() for line in run.lines[name]]
    return [(w[0], int(w[3])) for w in words if w[0] in ("committed", "discarded")
            and int(w[1]) == step]  # fmt: skip


def end_alike(run, *names):
    """All end with the same bits, and have committed each step once."""
    run.until(lambda: all(any(s.startswith("bits") for s in run.lines[name]) for name in names))
    assert len({run.said(name, "bits") for name in names}) == 1
    for name in names:
        seen = [int(line.split()[1]) for line in run.lines[name] if line.startswith("committed")]
        assert seen == list(range(seen[0], STEPS + 1))


def test_one_of_three_dies_in_an_allreduce_and_learns_when_it_is_back(run):
    begin(run, "in_allreduce")
    run.all_say(f"committed {FATAL} by 2", "a", "c")
    for name in "ac":
        assert outcomes(run, name, FATAL) == [("discarded", 3), ("committed", 2)]
    run.start("b", "lives")
    end_alike(run, "a", "c")


def test_a_late_one_trains_to_the_end_with_the_others(run):
    for name in "abc":
        run.start(name, "lives")
    run.all_say(f"committed {HOLD} by 3", *"abc")
    run.signal("b", signal.SIGKILL)
    run.start("b", "lives")  # while the others hold at the gate, or have left it behind
    run.open_gate()
    assert int(run.said("b", "loaded").split()[1]) >= HOLD
    end_alike(run, "a", "b", "c")
    assert outcomes(run, "b", STEPS) == [("committed", 3)]


def test_a_step_that_the_dead_one_had_voted_for_commits_at_all(run):
    """It knew of the commit and may have told nobody: the others, prepared too, commit (T-1)."""
    begin(run, "after_vote")
    run.all_say(f"committed {FATAL} by 3", "a", "c")
    end_alike(run, "a", "c")
    for name in "ac":
        assert outcomes(run, name, FATAL) == [("committed", 3)]


def test_a_step_that_the_dead_one_had_not_voted_for_has_one_outcome(run):
    """The service knows that both that are left were prepared, and the dead one had the sum."""
    begin(run, "before_vote")
    end_alike(run, "a", "c")
    assert outcomes(run, "a", FATAL) == outcomes(run, "c", FATAL)


def test_the_service_dies_and_no_step_is_lost(run):
    for name in "abc":
        run.start(name, "lives")
    run.all_say(f"committed {HOLD} by 3", *"abc")
    run.service.kill()
    end(run.service)
    run.open_gate()
    run.all_say(f"committed {STEPS - 10} by 3", *"abc")
    run.service = run.start_service()
    end_alike(run, *"abc")
    assert not [line for name in "abc" for line in run.lines[name] if line.startswith("discarded")]
