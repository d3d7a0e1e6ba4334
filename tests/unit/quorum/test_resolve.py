"""The open step's outcome, rule by rule (T-1)."""

from __future__ import annotations

from typing import Any

import pytest

from danaus.quorum.messages import Epoch, MemberId, OpenStep, Outcome, QuorumRecord, StepReport
from danaus.quorum.resolve import follows, resolve, settled_step

E1, E2 = Epoch(1, 1), Epoch(1, 2)
A0, A1, B0, B1 = (MemberId(name, rank, 1) for name in "ab" for rank in (0, 1))
C0 = MemberId("c", 0, 1)


def kept(step: int = 4, epoch: Epoch = E2, vote: Any = "prepared", digest: str = "d", **rest: Any):
    return OpenStep(step, epoch, vote, digest if vote == "prepared" else "", **rest)


def report(open_step: OpenStep | None = None, step: int = 3, fingerprint: str = "f") -> StepReport:
    return StepReport(step, fingerprint, E1, open_step=open_step)


def outcome(reports: dict[MemberId, StepReport], members: tuple[MemberId, ...] = ()) -> Outcome:
    return resolve(QuorumRecord(E2, members or tuple(reports)), reports)


def test_ranks_hold_different_shards_and_are_compared_within_a_rank():
    reports = {m: report(kept(digest=f"d{m.rank}"), 3, f"f{m.rank}") for m in (A0, A1, B0, B1)}
    assert (outcome(reports).verdict, outcome(reports).epoch) == ("commit", E2)


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (report(kept(digest="other")), "reduced gradients of step 4 differ at rank 0"),
        (report(kept(), fingerprint="other"), "states before step 4 differ at rank 0"),
        (report(kept(vote="refused", reason="nan")), "nan"),
        (report(kept(refused_seen=True)), "refused"),
        (report(kept(vote="none")), "had not voted"),
        (report(kept(epoch=E1)), "had not voted"),
        (report(None), "had not voted"),
    ],
    ids=["digest", "fingerprint", "refused", "seen", "no vote", "other epoch", "not begun"],
)
def test_one_survivor_that_speaks_against_it_is_enough(other, why):
    told = outcome({A0: report(kept()), B0: other})
    assert told.verdict == "discard"
    assert why in told.reason


def test_the_dead_the_restarted_and_the_absent_do_not_stand_in_the_way():
    reports = {A0: report(kept()), MemberId("b", 0, 2): report(None)}
    assert outcome(reports, (A0, B0, C0)).verdict == "commit"


def test_a_discard_names_first_who_is_gone():
    for other in (report(kept(vote="none")), report(kept(vote="refused", reason="left"))):
        told = outcome({A0: report(kept()), B0: other}, (A0, B0, C0))
        assert (told.verdict, told.reason.partition("; ")[0]) == ("discard", "c/0#1 is gone")


def test_a_commit_anywhere_is_a_commit():
    told = outcome({A0: StepReport(4, "f", E2), B0: report(kept(refused_seen=True))})
    assert (told.verdict, told.step, told.epoch) == ("commit", 4, E2)


def test_a_gradient_kept_from_another_attempt_is_not_applied():
    told = Outcome(4, "commit", "told", E2)
    assert follows(report(kept()), told)
    assert not follows(report(kept(epoch=E1)), told)
    assert not follows(report(kept(vote="refused")), told)
    assert not follows(report(kept(), step=2), told)
    assert [settled_step(report(kept(epoch=e)), told) for e in (E1, E2)] == [3, 4]


@pytest.mark.parametrize(("epoch", "verdict"), [(E2, "commit"), (E1, "discard")])
def test_who_has_learned_the_open_step_knows_that_it_is_committed(epoch, verdict):
    held = {A0: report(kept()), B0: report(kept(vote="none"))}
    told = resolve(QuorumRecord(E2, tuple(held)), held, {C0: StepReport(4, "g", epoch)})
    assert (told.step, told.verdict) == (4, verdict)
