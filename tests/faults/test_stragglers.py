"""One that is persistently slower than the others is named, and replaced if that is asked for."""

from __future__ import annotations

import time

import pytest

from danaus.app.events import Event
from danaus.app.settings import StragglerConfig
from danaus.ft.observer import Observer
from danaus.testing.runs import Shape, running, small_run

FORWARD_S = 0.02
SHAPE = Shape(replicas=3, leaves=3, steps=40)


class Forward:
    """Makes every forward of a process take a while longer.

    Args:
        takes_s: So much longer.
        first_s: In the process that is first to make the file ``mark``.
        mark: None: they are all alike.
    """

    def __init__(self, takes_s=FORWARD_S, first_s=0.0, mark=None):
        self.takes_s, self.first_s, self.mark = takes_s, first_s, mark

    def __call__(self, work):
        takes_s = self.takes_s
        if self.mark is not None and not self.mark.exists():
            self.mark.touch()
            takes_s = self.first_s
        work.trainer.network.register_forward_pre_hook(lambda *_: _compute_for(takes_s))
        return Observer()


def _compute_for(takes_s):
    ends = time.monotonic() + takes_s
    while time.monotonic() < ends:
        pass


def run_of(path, slow, **straggler):
    observers = {f"replica-{n}": (Forward(),) for n in (0, 2)}
    config = StragglerConfig(steps=10, **straggler)
    return small_run(path, SHAPE, observers={**observers, "replica-1": (slow,)}, straggler=config)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_one_that_computes_slowly_is_named(tmp_path, undisturbed):
    run = run_of(tmp_path / "run", Forward(5 * FORWARD_S))
    with running(run) as going:
        assert going.result(100).sha256 == undisturbed(run)
        watch = going.watch
    found = watch.events(Event.STRAGGLER_FOUND)[0]
    assert found["process_id"].split("/")[1] == "replica-1"
    assert "times as long as the others over the last 10 steps" in found["reason"]
    assert {each["replica"] for each in watch.events(Event.STRAGGLER_FOUND)} == {"replica-1"}
    assert not watch.events(Event.PROCESS_EXITED)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_one_that_stays_slow_makes_room_for_another_at_a_boundary(tmp_path, undisturbed):
    slow = Forward(first_s=5 * FORWARD_S, mark=tmp_path / "was-slow")
    run = run_of(tmp_path / "run", slow, replace=True)
    with running(run) as going:
        assert going.result(100).sha256 == undisturbed(run)
        watch = going.watch
    assert {each["replica"] for each in watch.events(Event.STRAGGLER_FOUND)} == {"replica-1"}
    (failed,) = watch.events(Event.REPLICA_FAILED)
    assert "is replaced: it took" in failed["reason"]
    assert [each["replica"] for each in watch.events(Event.HEALED)] == ["replica-1"]
    assert not watch.events(Event.STEP_DISCARDED), "nothing that was computed is thrown away"
