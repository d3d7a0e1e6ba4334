"""A run on a system that has nothing of what Linux alone has, in all its processes."""

import signal

import pytest
from tests.procs.elsewhere import everywhere

from danaus.ft.observer import Moment
from danaus.testing.faults import FORWARD, Pace, Strike
from danaus.testing.runs import Shape, small_run
from danaus.testing.watching import RunWatch

SHAPE = Shape(replicas=3, leaves=5, steps=40)
ALONE_STEP_S = 1.0
"""A step takes so long while somebody is away, whose start takes the imports there."""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_workers_are_killed_and_stopped_and_the_bits_are_those_of_linux(
    tmp_path, controlled, undisturbed
):
    pace = Pace(ALONE_STEP_S, until=tmp_path / "back", below=SHAPE.replicas)
    strikes = (Strike(Moment.VOTED, 5), Strike(FORWARD, 9, number=signal.SIGSTOP, at_strength=3))
    observers = {
        "replica-0": (pace,),
        "replica-1": (strikes[0], pace),
        "replica-2": (strikes[1], pace),
    }
    run = small_run(tmp_path / "run", SHAPE, observers=observers)
    controller = controlled(run, env=everywhere(tmp_path))
    watch = RunWatch(run.folder, ended=lambda: controller.poll() is not None)
    watch.until("both strikes", lambda: len(watch.strikes()) == 2, limit_s=120)
    watch.until("both deaths", lambda: len(watch.deaths()) == 2, limit_s=60)
    watch.until_members(SHAPE.replicas, limit_s=90)
    (tmp_path / "back").touch()
    said, _ = controller.communicate(timeout=100)
    assert said.split() == [undisturbed(run)]
