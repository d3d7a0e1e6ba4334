"""What tests of the step machine are made of: announcements, ballots, a member that votes."""

from __future__ import annotations

import msgspec

from danaus.ft.step import Stage, StepMachine
from danaus.ft.step_events import (
    Announced,
    Ballot,
    Computed,
    Reduced,
    Started,
)
from danaus.quorum.messages import Announcement, Epoch, MemberId, Outcome, Seat

A, B, C = (MemberId(name, 0, 1) for name in "abc")
E1, E2, E3 = Epoch(1, 1), Epoch(1, 2), Epoch(1, 3)
NONE = Outcome(0, "none", "no step was open")


def seat(member: MemberId) -> Seat:
    return Seat(member, 1, f"unix:/{member}")


def announce(epoch=E1, members=(A, B, C), committed=0, outcome=NONE, **rest) -> Announced:
    rest.setdefault("learners", ())
    rest.setdefault("reason", "told")
    return Announced(
        Announcement(
            epoch=epoch,
            members=tuple(seat(member) for member in members),
            committed_step=committed,
            outcome=outcome,
            **rest,
        )
    )


def ballots(*voters, epoch=E1, step=1, **changed) -> dict[MemberId, Ballot]:
    votes = {
        voter: Ballot(voter, epoch, step, "prepared", "d", "f0") for voter in voters or (A, B, C)
    }
    for name, change in changed.items():
        member = MemberId(name, 0, 1)
        votes[member] = msgspec.structs.replace(votes[member], **change)
    return votes


def machine(**rest) -> StepMachine:
    return StepMachine(A, 1, rest.pop("total_steps", 5), fingerprint="f0", **rest)


def drive(member: StepMachine, *events):
    """Feed every event; return the instructions of the last."""
    done = ()
    for event in events:
        done = member.handle(event)
    return done


def voting(**rest) -> StepMachine:
    member = machine(**rest)
    drive(member, Started(), announce(), Computed(E1, 1), Reduced(E1, 1, "d"))
    assert member.stage is Stage.VOTING
    return member


def kinds(instructions) -> list[type]:
    return [type(one) for one in instructions]
