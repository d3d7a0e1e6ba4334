"""H-5, Q-9: when a checkpoint is due, and whether it is of the right state."""

from __future__ import annotations

import msgspec
import pytest

from danaus.ft.saving import SaveNote, SavePlan, decide, verdict
from danaus.ft.step_events import Ballot
from danaus.quorum.messages import Epoch, MemberId

A0, A1, B0, B1 = (MemberId(name, rank, 0) for name in "ab" for rank in (0, 1))
BY_STEPS = SavePlan(every_steps=4, every_s=900.0, last_step=10)
BY_TIME = SavePlan(every_s=900.0, last_step=10)


def notes(**changed: SaveNote) -> dict[MemberId, SaveNote]:
    said = {"A0": SaveNote(), "A1": SaveNote(), "B0": SaveNote(), "B1": SaveNote(), **changed}
    return dict(zip((A0, A1, B0, B1), said.values(), strict=True))


def test_steps_that_are_named_win() -> None:
    long_ago = notes(A0=SaveNote(idle_s=9e9))
    due = [step for step in range(1, 11) if decide(BY_STEPS, step, long_ago) == "save"]
    assert due == [4, 8, 10]


def test_by_time_whoever_has_seen_the_last_one_tells() -> None:
    assert decide(BY_TIME, 3, notes()) == "no"
    assert decide(BY_TIME, 3, notes(B1=SaveNote(idle_s=899.0))) == "no"
    # The replica that writes has just begun; another knows how long ago the last one was.
    assert decide(BY_TIME, 3, notes(B0=SaveNote(idle_s=900.0))) == "save"
    assert decide(BY_TIME, 10, notes()) == "save", "the last state is kept"


@pytest.mark.parametrize(("idle_s", "decision"), [(1999.0, "no"), (2000.0, "save")])
def test_they_cost_one_percent_of_the_time_at_most(idle_s: float, decision: str) -> None:
    said = notes(A0=SaveNote(idle_s=idle_s), A1=SaveNote(cost_s=20.0))
    assert decide(BY_TIME, 3, said) == decision


def test_the_replica_that_writes_must_be_done_with_the_one_before() -> None:
    assert decide(BY_STEPS, 4, notes(A1=SaveNote(busy=True))) == "skip"
    assert decide(BY_STEPS, 4, notes(B0=SaveNote(busy=True))) == "save"
    assert decide(BY_STEPS, 3, notes(A1=SaveNote(busy=True))) == "no"
    assert decide(BY_STEPS, 10, notes(A1=SaveNote(busy=True))) == "save", "the last waits"


def test_none_is_written_where_none_is_asked_for() -> None:
    plan = SavePlan(last_step=10)
    assert {decide(plan, step, notes(A0=SaveNote(idle_s=9e9))) for step in range(1, 11)} == {"no"}


def test_the_votes_tell_of_which_state_a_checkpoint_is() -> None:
    assert verdict("x", ["x", "x"]) == "agreed"
    assert verdict("x", ["y", "y"]) == "wrong"
    assert verdict("x", ["x", "y"]) == "open", "the minority heals first"
    assert verdict("x", []) == "open"


def test_a_note_travels_with_a_ballot() -> None:
    said = SaveNote(1.5, 0.25, True, 8)
    ballot = Ballot(A0, Epoch(1, 2), 9, "prepared", "d", "f", save=said)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(ballot), type=Ballot).save == said
