"""T-1 to T-7, H-1: whoever dies in whichever phase, the run ends with an undisturbed run's bits."""

import pytest

from danaus.app.events import Event
from danaus.core import journal
from danaus.ft.lineage import merge, verify
from danaus.ft.observer import Moment
from danaus.testing.faults import FORWARD, REDUCE, Strike
from danaus.testing.runs import Shape, finish, plain_sha256, small_run

ONE_RANK = {
    "replica-0": (Strike(FORWARD, step=2), Strike(Moment.APPLIED, step=9, incarnation=1)),
    "replica-1": (Strike(Moment.VOTED, step=5), Strike(Moment.LEARNING, step=0, incarnation=1)),
    "replica-2": (Strike(REDUCE, step=7), Strike(FORWARD, step=0, incarnation=1)),
}
"""Inside forward; between vote and commit, and then while learning; inside the reduction, and
then at once again; between commit and announcement."""


def events(run, name):
    return [line for line in journal.read(run.folder.journal_path) if line["event"] == name]


def signals(run):
    """Deaths by SIGKILL that were not asked for, by replica and incarnation."""
    return {
        (e["replica"], e["incarnation"])
        for e in events(run, Event.PROCESS_EXITED)
        if e["signal"] == "SIGKILL" and not e["expected"]
    }


def struck(observers):
    return {(name, strike.incarnation) for name, strikes in observers.items() for strike in strikes}


@pytest.mark.parametrize("leaves", [5, 7])
def test_kills_in_every_phase_leave_no_trace(tmp_path, leaves):
    shape = Shape(replicas=3, leaves=leaves, steps=16)
    run = small_run(tmp_path / "run", shape, observers=ONE_RANK)
    result = finish(run)
    assert result.sha256 == plain_sha256(run.config)
    assert signals(run) == struck(ONE_RANK)
    told = verify(merge(run.folder.ledger_paths()))
    assert told.ok, told.problems
    assert told.num_steps == 16
