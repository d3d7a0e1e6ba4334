"""The outcome of the open step, from what the members of the last quorum report (T-1).

Owns the one function that decides between commit and discard when a quorum changes, and what it
means for one member to follow it.  Pure.  ``quorum.state`` persists its answer before anyone
hears of it; ``ft.step`` follows it.

Invariants:
    T-1: a step commits at all members or at none.  Sound because a commit anywhere means that
    every member was prepared with one digest, so whoever survives holds the same reduced
    gradient; and because a discard happens only where someone refused, or promised by joining
    not to vote, which makes a commit elsewhere impossible.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from danaus.quorum.messages import MemberId, OpenStep, Outcome, QuorumRecord, StepReport

_MOST_CAUSES = 2

Reports = Mapping[MemberId, StepReport]
_NOBODY: Reports = {}


def resolve(last: QuorumRecord, reports: Reports, witnesses: Reports = _NOBODY) -> Outcome:
    """Return what becomes of the step that the members of ``last`` may have left open.

    A member of ``last`` that is missing from ``reports`` is dead, restarted, out of reach or of
    a replica that lost a rank: none of these stands in the way of a commit.

    Args:
        last: The last quorum that was announced.
        reports: What those who joined report, by member; others than ``last``'s are ignored.
        witnesses: What those report who joined and were not in ``last``: whoever has learned a
            step has it from one who committed it.

    Returns:
        The outcome, with its reason in words.
    """
    survivors = {member: reports[member] for member in last.members if member in reports}
    if not survivors:
        return Outcome(0, "none", "no member of the last quorum has joined")
    lineage, committed = max((r.lineage_term, r.committed_step) for r in survivors.values())
    if _lags(survivors, committed):
        return _committed_by_some(survivors, committed)
    if learned := _learned(survivors, witnesses, lineage=lineage, step=committed + 1):
        return learned
    if any(_open(report, committed + 1) for report in survivors.values()):
        return _decide(last, survivors, committed + 1)
    fresh = any(
        report.committed_step == committed and report.committed_epoch == last.epoch
        for report in survivors.values()
    )
    if fresh and len(survivors) < len(last.members):
        return _committed_by_some(survivors, committed)
    return Outcome(0, "none", "no step was open")


def follows(report: StepReport, outcome: Outcome) -> bool:
    """Tell whether a member that reported so applies the reduced gradient that it kept."""
    kept = report.open_step
    return (
        outcome.verdict == "commit"
        and kept is not None
        and kept.vote == "prepared"
        and kept.step == outcome.step == report.committed_step + 1
        and outcome.epoch in (None, kept.epoch)
    )


def settled_step(report: StepReport, outcome: Outcome) -> int:
    """Return the step at which a member stands once it has followed ``outcome``."""
    return report.committed_step + (1 if follows(report, outcome) else 0)


def _open(report: StepReport, step: int) -> OpenStep | None:
    kept = report.open_step
    return kept if kept is not None and kept.step == step else None


def _lags(survivors: Reports, committed: int) -> bool:
    """Tell whether someone holds open what another has committed."""
    return any(
        report.committed_step == committed - 1 and _open(report, committed) is not None
        for report in survivors.values()
    )


def _learned(survivors: Reports, witnesses: Reports, *, lineage: int, step: int) -> Outcome | None:
    """Return that a step is committed which survivors hold open and somebody else has learned."""
    held = {kept.epoch for report in survivors.values() if (kept := _open(report, step))}
    by = [
        member
        for member, report in witnesses.items()
        if (report.lineage_term, report.committed_step) == (lineage, step)
        and report.committed_epoch in held
    ]
    if not by:
        return None
    epoch = witnesses[min(by)].committed_epoch
    return Outcome(step, "commit", f"{_names(by)} has learned step {step}", epoch)


def _names(members: list[MemberId]) -> str:
    return ", ".join(str(member) for member in sorted(members))


def _committed_by_some(survivors: Reports, step: int) -> Outcome:
    top = max(report.lineage_term for report in survivors.values())
    by = [
        member
        for member, report in survivors.items()
        if report.lineage_term == top and report.committed_step == step
    ]
    epoch = max((e for m in by if (e := survivors[m].committed_epoch) is not None), default=None)
    return Outcome(step, "commit", f"step {step} was committed by {_names(by)}", epoch)


def _decide(last: QuorumRecord, survivors: Reports, step: int) -> Outcome:
    """Decide about a step that no survivor has committed."""
    epoch = last.epoch
    held: dict[MemberId, OpenStep] = {}
    for member, report in survivors.items():
        kept = _open(report, step)
        if kept is not None and kept.epoch == epoch:
            held[member] = kept
    gone = _gone(last, survivors)
    refused = [m for m, kept in held.items() if kept.vote == "refused" or kept.refused_seen]
    if refused:
        why = _causes(held[m].reason for m in sorted(refused))
        reason = f"{gone}step {step} was refused, as {_names(refused)} knows"
        return Outcome(step, "discard", f"{reason}: {why}" if why else reason, epoch)
    unprepared = [m for m in survivors if m not in held or held[m].vote != "prepared"]
    if unprepared:
        reason = f"{gone}{_names(unprepared)} had not voted on step {step}"
        return Outcome(step, "discard", reason, epoch)
    if differ := _differing(survivors, held, step):
        return Outcome(step, "discard", f"divergence: {differ}", epoch)
    absent = len(last.members) - len(survivors)
    return Outcome(
        step,
        "commit",
        f"all {len(survivors)} that are left of {len(last.members)} were prepared for step {step} "
        f"with one digest" + (f" ({absent} absent)" if absent else ""),
        epoch,
    )


def _gone(last: QuorumRecord, survivors: Reports) -> str:
    """Say first who of a quorum is not there any more: what the others did follows from it."""
    gone = [member for member in last.members if member not in survivors]
    if not gone:
        return ""
    return f"{_names(gone)} {'is' if len(gone) == 1 else 'are'} gone; "


def _causes(reasons: Iterable[str]) -> str:
    """Return what is said most rarely, first: who found the cause is fewer than who felt it."""
    said = Counter(reason for reason in reasons if reason)
    return "; ".join(sorted(said, key=lambda reason: said[reason])[:_MOST_CAUSES])


def _differing(survivors: Reports, held: Mapping[MemberId, OpenStep], step: int) -> str:
    """Return how those prepared differ; the ranks of a replica hold different shards.

    A gradient computed of unequal states is spoiled, whoever of them is right (Q-9).
    """
    seen: dict[tuple[str, int], dict[str, list[str]]] = {}
    for member, kept in sorted(held.items()):
        prints = {
            f"states before step {step}": survivors[member].fingerprint,
            f"reduced gradients of step {step}": kept.digest,
        }
        for what, value in prints.items():
            seen.setdefault((what, member.rank), {}).setdefault(value, []).append(str(member))
    for (what, rank), holders in seen.items():
        if len(holders) > 1:
            each = "; ".join(f"{', '.join(who)} has {value}" for value, who in holders.items())
            return f"{what} differ at rank {rank}: {each}"
    return ""
