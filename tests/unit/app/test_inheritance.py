"""Which mesh that was left is which replica, and when a run is over (A-12, P-4)."""

from __future__ import annotations

from pathlib import Path

import pytest

from danaus.actor.adopting import LeftProcs
from danaus.actor.holdings import HeldProcess, ProcsHeld
from danaus.actor.made_of import MadeOf
from danaus.app.events import Event
from danaus.app.inheritance import Inheritance
from danaus.app.watchdog import is_over
from danaus.app.worker import ReplicaWorker
from danaus.core.errors import ConfigError


def left(mesh, born, *, host=0, alive=True, **notes):
    process = HeldProcess(f"host{host}/{mesh}/0#{born}", f"unix:/host{host}")
    held = ProcsHeld(f"{mesh}.{born}", mesh, "run", ("ranks",), (1,), (process,))
    living = frozenset({process.process_id} if alive else ())
    return LeftProcs(held, (), notes, {}, living, frozenset(), "job", MadeOf(Path("nowhere")))


class Turn:
    """A controller's turn that found these."""

    def __init__(self, *found):
        self._found, self.dropped = found, []

    def left(self):
        return self._found

    def drop(self, each):
        self.dropped.append(each.name)


def test_replicas_are_known_by_name_incarnation_and_host():
    inheritance = Inheritance(Turn(left("replica-0", 2), left("replica-1", 0, host=1)))
    assert inheritance.living == {"replica-0": 2, "replica-1": 0}
    assert inheritance.hosts == {"replica-0": 0, "replica-1": 1}
    found = inheritance.claim("replica-1")
    assert (found.incarnation, found.host, found.is_another_by_birth) == (0, 1, False)
    assert inheritance.claim("replica-1") is None
    assert inheritance.living == {"replica-0": 2}


def test_a_spare_that_has_become_a_replica_is_that():
    spare = left("spare-0", 4, host=3, name="replica-1", incarnation="7")
    found = Inheritance(Turn(spare)).claim("replica-1")
    assert (found.incarnation, found.host, found.is_another_by_birth) == (7, 3, True)


@pytest.mark.parametrize("order", [1, -1])
def test_of_several_lives_of_a_replica_the_living_counts_and_then_the_newest(order):
    lives = [left("replica-0", 1), left("replica-0", 2), left("replica-0", 3, alive=False)]
    inheritance = Inheritance(Turn(*lives[::order]))
    assert inheritance.living == {"replica-0": 2}
    assert inheritance.claim("replica-0").incarnation == 2


def test_what_is_dropped_is_looked_for_no_more():
    turn = Turn(left("replica-0", 0, alive=False), left("replica-1", 0, alive=False))
    inheritance = Inheritance(turn)
    assert not inheritance.living
    inheritance.drop()
    assert turn.dropped == ["replica-0", "replica-1"]
    assert inheritance.claim("replica-0") is None


def test_workers_that_were_never_made_cannot_be_adopted():
    found = Inheritance(Turn(left("replica-0", 0))).claim("replica-0")
    with pytest.raises(ConfigError, match="were not made there yet"):
        found.left.adopt_actors("worker", ReplicaWorker)


def test_a_replica_that_was_repaired_is_all_its_meshes_of_the_newest_incarnation():
    """H-3: each knows which ranks its processes are; one that nobody counts on is apart."""
    noted = {"name": "replica-0", "incarnation": "2"}
    whole = left("replica-0", 0, **noted, ranks='{"host0/replica-0/0#0": 1}')
    new = left("rank0-of-replica-0", 2, **noted, ranks='{"host0/rank0-of-replica-0/0#2": 0}')
    half = left("rank1-of-replica-0", 3)  # its controller died before it was told of
    inheritance = Inheritance(Turn(whole, new, half))
    found = inheritance.claim("replica-0")
    assert {part.name for part in (found.left, *found.apart)} == {
        "replica-0",
        "rank0-of-replica-0",
    }
    assert found.ranks == {"host0/replica-0/0#0": 1, "host0/rank0-of-replica-0/0#2": 0}
    assert (found.incarnation, found.is_another_by_birth) == (2, False)
    assert inheritance.claim("replica-0") is None
    assert inheritance.claim("rank1-of-replica-0") is not None


@pytest.mark.parametrize(
    ("events", "over"),
    [
        ((), False),
        ((Event.RUN_STARTED,), False),
        ((Event.RUN_STARTED, Event.RUN_FINISHED), True),
        ((Event.RUN_STARTED, Event.RUN_STOPPED, Event.RUN_STARTED), False),
        ((Event.RUN_STARTED, Event.RUN_FAILED), True),
        ((Event.RUN_STARTED, Event.RUN_STOPPED, Event.RUN_ADOPTED, Event.PROCESS_EXITED), False),
    ],
)
def test_a_run_is_over_once_its_newest_controller_has_said_so(events, over):
    assert is_over({"event": name} for name in events) is over
