"""Faults inside a worker: who is blamed, what is lost, and that the bits stay the same."""

import pytest

from danaus.app.chaos_inside import make_inside
from danaus.app.chaos_spec import read
from danaus.app.events import Event
from danaus.ft.lineage import merge, verify
from danaus.testing.faults import Pace
from danaus.testing.runs import Shape, running, small_run

HANG_LIMIT_S = 1.5
PACE_S = 0.3


@pytest.fixture
def struck(tmp_path, undisturbed):
    """Return a function that makes a run, strikes it and returns what it wrote."""

    def run(specs, steps, replicas=3, **more):
        faults = [read(spec) for spec in specs]
        pace = Pace(PACE_S, until=tmp_path / "all have hit", below=replicas)
        observers = {
            f"replica-{place}": (*(make_inside(f) for f in faults if f.replica == place), pace)
            for place in range(replicas)
        }
        shape = Shape(replicas=replicas, leaves=5, steps=steps)
        made = small_run(tmp_path / "run", shape, observers=observers, **more)
        with running(made) as going:
            watch = going.watch
            watch.until("every fault", lambda: len(watch.strikes()) >= len(faults), limit_s=40)
            pace.until.touch()
            result = going.result(50)
        assert result.sha256 == undisturbed(made)
        assert not watch.events(Event.FAULT_MISSED)
        told = verify(merge(made.folder.ledger_paths()))
        assert told.ok, told.problems
        return watch

    return run


def exits(watch):
    """Return who died of what."""
    lines = watch.events(Event.PROCESS_EXITED, expected=False)
    return {(line["replica"], line["incarnation"]): line["signal"] for line in lines}


@pytest.mark.timeout(120)
def test_whoever_dies_of_its_own_doing_is_replaced(struck):
    watch = struck(
        ["segv:replica=0,at_step=3,at_phase=forward", "oom:replica=1,at_step=9"], steps=24
    )
    assert exits(watch) == {("replica-0", 0): "SIGSEGV", ("replica-1", 0): "SIGKILL"}


@pytest.mark.timeout(120)
def test_whoever_hangs_where_no_signal_helps_is_evicted_alone(struck):
    watch = struck(
        [
            "hang:where=gil,replica=0,at_step=3",
            "hang:where=collective,replica=1,at_step=10",
            "hang:where=loader,replica=2,at_step=17",
        ],
        steps=30,
        hang_limit_s=HANG_LIMIT_S,
    )
    assert exits(watch) == {(f"replica-{place}", 0): "SIGKILL" for place in range(3)}
