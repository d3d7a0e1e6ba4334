"""Forming the next quorum from those who ask.

Owns the steps from outstanding joins to an announcement: what must be waited for first, the open
step's outcome, divergence, learners that fail.  Who takes part is ``quorum.decision``'s choice,
how it is announced ``quorum.forming``'s.  Functions of the quorum machine: pure, on its
``Situation``.

Invariants:
    Q-1: an announcement is ordered only behind its ``Persist``.
    Q-7: nobody is left behind before its fence is settled, but for one whose heart beats and that
        has not asked within the join limit: slow rather than hung, it may ask again, and learn.
    Q-9: a second divergence at the same step stops the run.
    T-1: the outcome is part of what is persisted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from danaus.quorum.agreement import Agreement
from danaus.quorum.decision import Decision, ReplicaView, View, decide
from danaus.quorum.events import Abort, Announce, NoteDivergence, Persist, Saved
from danaus.quorum.forming import (
    Formation,
    History,
    announcement_of,
    next_epoch,
    outsiders,
    why_restore,
)
from danaus.quorum.leaving import release_alone, release_last, release_outsiders
from danaus.quorum.messages import AbortExchange, Announcement, Learner, Outcome, Refused
from danaus.quorum.repairs import repairing
from danaus.quorum.resolve import follows, resolve
from danaus.quorum.roster import Incarnation, incarnation_of
from danaus.quorum.situation import Episode, Situation, Undo
from danaus.quorum.trailing import Schooling, carried, caught_up, is_done, last_call, late, school

WRONG_LIMIT = 2
"""How often a learner's fingerprint may be wrong after it has learned."""


def convene(s: Situation) -> None:
    """Form the next quorum if that can be done now; else tell who asks why not."""
    release_outsiders(s)
    if not s.roster.joined():
        return
    if s.stopped is not None:
        s.refuse(s.roster.joined(), s.stopped)
        return
    if blocked := _must_wait_first(s):
        s.tell(blocked)
        return
    if release_last(s):
        return
    outcome = open_outcome(s)
    view = view_of(s, outcome)
    decision = decide(view, s.now)
    blocked = decision.reason if decision.members is None else _fences(s)
    if not blocked and decision.agreement is not None:
        blocked = last_call(s, _newest(s, decision.agreement.holders))
    if blocked:
        if decision.members is None:
            release_alone(s)
        s.tell(blocked)
        return
    _conclude(s, decision, view=view, outcome=outcome)


def open_outcome(s: Situation) -> Outcome:
    """Return what becomes of the step that the last quorum may have left open (T-1)."""
    previous = s.previous
    if previous is None:
        return Outcome(0, "none", "there was no quorum before")
    reports = {
        member: report
        for member in previous.members
        if (report := s.roster.report(member)) is not None
        and s.roster.is_newest(incarnation_of(member))
        and not s.roster.loss(incarnation_of(member))
    }
    if s.standing is not None and not s.by_hearsay:
        stored = s.standing.outcome
        # One who was told of the standing quorum and did not follow it: no step after the one
        # that it settled can have been committed, and what was settled stands.
        if any(follows(report, stored) for report in reports.values()):
            return stored
    members = set(previous.members)
    witnesses = {
        process.seat.member: process.join.report
        for process in s.roster.joined()
        if process.join is not None and process.seat.member not in members
    }
    return resolve(previous, reports, witnesses)


def view_of(s: Situation, outcome: Outcome) -> View:
    """Return what ``decide`` decides from."""
    previous = s.previous
    incarnations = {incarnation_of(m) for m in previous.members} if previous is not None else set()
    return View(
        settings=s.settings,
        replicas={of[0]: s.roster.view(of, s.now, outcome) for of in s.roster.newest.items()},
        previous={of[0]: s.roster.view(of, s.now, outcome) for of in sorted(incarnations)},
        disk_lost=s.by_hearsay,
        trailing=frozenset(replica_id for replica_id, _ in late(s)),
    )


# -- what comes first -------------------------------------------------------------------------


def _must_wait_first(s: Situation) -> str:
    """Return what stands before any decision; empty: nothing."""
    if s.now < s.retry_at:
        return "the last quorum could not be saved; trying again"
    if s.deaf:
        return "nobody is heard; waiting for whoever is, or this service, to be within reach again"
    if s.lost and s.standing is None:
        if s.now < s.started + s.settings.heartbeat_limit_s:
            return "this service lost its disk; waiting for members of an earlier quorum to come"
        if s.previous is None and s.ledger_steps > 0:
            _refuse_fresh(s)
            return "refuses: resume from a checkpoint"
    if s.now < s.episode.hold_until and (late := _late_learners(s)):
        names = ", ".join(sorted({replica_id for replica_id, _ in late}))
        return f"{names} learns; waiting at this boundary"
    return ""


def _refuse_fresh(s: Situation) -> None:
    """Do not begin anew in a run whose steps are on record (Q-3)."""
    reason = (
        f"only fresh processes have joined, but the ledger holds {s.ledger_steps} committed steps "
        "and this service has lost what it knew of the last quorum"
    )
    s.refuse(s.roster.joined(), Refused(reason, "resume from a checkpoint (--resume)"))


def _late_learners(s: Situation) -> set[Incarnation]:
    """Return the learners that the members wait for and that may still come."""
    return {
        of
        for of in _learners_of(s.holding())
        if not s.roster.has_joined(of)
        and not s.roster.loss(of)
        and not s.roster.shut_out.get(of)
        and of not in s.roster.departing
        and s.roster.is_newest(of)
    }


def _fences(s: Situation) -> str:
    """Return whose fence is not settled; a replica that is lost anyhow is not waited for."""
    previous = s.previous
    for member in previous.members if previous is not None else ():
        process = s.roster.processes.get(member)
        if (
            process is not None
            and process.fenced_at is not None
            and not s.roster.loss(incarnation_of(member))
        ):
            return f"fencing {member}: {process.fence_reason}"
    return ""


# -- the quorum -------------------------------------------------------------------------------


def _conclude(s: Situation, decision: Decision, *, view: View, outcome: Outcome) -> None:
    agreement = decision.agreement
    assert agreement is not None
    assert decision.members is not None
    if agreement.diverged:
        _note_divergence(s, agreement)
        if _stopped_by(s, agreement):
            return
    members, learners = _newest(s, decision.members), _newest(s, decision.learners)
    reports = [report for of in (*members, *learners) for report in s.roster.reports(of)]
    restorable = min(report.restorable_step for report in reports)
    standing = None if s.by_hearsay else s.standing
    history = History(s.previous, standing, s.began, s.ledger_steps)
    if why := why_restore(history, decision, restorable):
        nothing = Outcome(0, "none", why)
        everyone = sorted([*members, *learners])
        reason = _join(decision, why)
        formation = Formation(everyone, (), "restore", restorable, 0, nothing, reason)
        apart = (agreement.step,) if agreement.diverged and not agreement.holders else ()
        _announce(s, formation, (*s.diverged, *apart))
        return
    _judge_learners(s, view.replicas, agreement)
    learners = [of for of in learners if not s.roster.gone(of, s.now)]
    if not learners and len(members) < s.settings.min_replicas:
        s.tell(f"{len(members)} of {s.settings.min_replicas} needed hold the state")
        return
    _announce(s, _live(s, decision, members, learners=learners, outcome=outcome), s.diverged)


def _live(
    s: Situation,
    decision: Decision,
    members: list[Incarnation],
    *,
    learners: list[Incarnation],
    outcome: Outcome,
) -> Formation:
    """Return the quorum of those who hold the state: it goes on, waits, or has finished."""
    agreement = decision.agreement
    assert agreement is not None
    # Whoever was taught on the way is about to enter; with it all end with the same state.
    entering = not _learners_of(s.trailing()).isdisjoint(learners)
    entering = entering or any(caught_up(s, of, agreement.lineage) for of in learners)
    done = is_done(s, members)
    finished = done and not entering
    chosen = school(s, learners, agreement, members=members)
    only_brief = len(chosen.brief) + len(chosen.trailing) == len(learners)
    return Formation(
        members,
        outsiders(s.roster, members) if finished else learners,
        "live",
        agreement.step,
        agreement.lineage,
        outcome,
        _join(decision, _on_learners(learners, agreement, chosen)),
        finished,
        lenders=chosen.lenders,
        trailing=chosen.trailing,
        carried=() if finished else carried(s, members, agreement),
        brief=chosen.brief,
        limit_s=chosen.limit_s if only_brief else 0.0,
    )


def _newest(s: Situation, names: Iterable[str]) -> list[Incarnation]:
    return [(name, s.roster.newest[name]) for name in names]


def _join(decision: Decision, more: str) -> str:
    return f"{decision.reason}; {more}" if more and more not in decision.reason else decision.reason


def _on_learners(learners: list[Incarnation], agreement: Agreement, chosen: Schooling) -> str:
    """Say who learns, whether that heals a divergence, and whether the others go on."""
    names = ", ".join(name for name, _ in learners)
    if agreement.diverged:
        prints = ", ".join(f"{name} has {fp}" for name, fp in agreement.diverged.items())
        return f"fingerprints of step {agreement.step} differ ({prints}): {names} learns anew"
    meanwhile = f", the others {chosen.reason}" if chosen.reason else ""
    if chosen.trailing and len(chosen.trailing) == len(learners):
        meanwhile = " while the others go on"
    return f"{names} learns step {agreement.step}{meanwhile}" if names else ""


def _note_divergence(s: Situation, agreement: Agreement) -> None:
    minority = [name for name in agreement.behind if name in agreement.diverged]
    healing = f"{', '.join(minority)} heals" if agreement.holders else "without a majority"
    if not s.settings.heal_divergence:
        healing = "healing is switched off"
    reason = f"fingerprints of step {agreement.step} differ: {healing}"
    named = tuple(minority) if agreement.holders else ()
    s.out.append(NoteDivergence(agreement.step, dict(agreement.diverged), named, reason))


def _stopped_by(s: Situation, agreement: Agreement) -> bool:
    """Stop the run where replicas disagree and replaying is of no use or not wanted (Q-9)."""
    again = not agreement.holders and agreement.step in s.diverged
    if s.settings.heal_divergence and not again:
        return False
    why = "for the second time" if again else "and healing is switched off"
    s.stopped = Refused(
        reason=f"replicas disagree about the state after step {agreement.step}, {why}",
        to_do="test these hosts' memory and devices, then resume from a checkpoint",
        diverged=dict(agreement.diverged),
        step=agreement.step,
    )
    s.refuse(s.roster.joined(), s.stopped)
    return True


def _judge_learners(
    s: Situation, replicas: Mapping[str, ReplicaView], agreement: Agreement
) -> None:
    """Count what became of those that learned, once."""
    back = {of for of in _learners_of(s.trailing()) if s.roster.has_joined(of)}
    for of in sorted(_learners_of(s.holding()) | back):
        if of in s.episode.judged or s.roster.loss(of) or not s.roster.is_newest(of):
            continue
        if of in s.roster.left_out or of in s.roster.leaving:
            continue  # that it does not take part says nothing of what it learned
        s.episode.judged.add(of)
        if of[0] in agreement.holders:
            s.lessons.forget(of, max(report.lesson_s for report in s.roster.reports(of)))
            continue
        place = replicas[of[0]].place
        alike = (place.lineage, place.step) == (agreement.lineage, agreement.step)
        if s.roster.has_joined(of) and alike:
            _count_wrong(s, of, agreement.step)
        elif of in back and caught_up(s, of, agreement.lineage):
            continue
        elif of in s.episode.brief:
            s.lessons.late.add(of)  # it trails when it asks again
        else:
            s.lessons.failures[of] = s.lessons.failures.get(of, 0) + 1
        s.roster.pauses[of] = s.now + s.lessons.pause_s(of)
        _release_late(s, of)


def _learners_of(learners: Iterable[Learner]) -> set[Incarnation]:
    return {incarnation_of(learner.seat.member) for learner in learners}


def _count_wrong(s: Situation, of: Incarnation, step: int) -> None:
    """Note a learner whose state is not its donors'; twice, and it is not trusted any more."""
    wrong = s.lessons.wrong[of] = s.lessons.wrong.get(of, 0) + 1
    if wrong < WRONG_LIMIT:
        return
    s.roster.shut_out[of] = f"holds a wrong state after learning step {step} {wrong} times"
    prints = ",".join(report.fingerprint for report in s.roster.reports(of))
    reason = f"{of[0]}#{of[1]} {s.roster.shut_out[of]} (fingerprint {prints})"
    message = Refused(reason, "test this host's memory and devices", step=step)
    s.refuse(s.roster.ranks(of), message)


def _release_late(s: Situation, of: Incarnation) -> None:
    """Tell a learner that is not waited for any more to ask again."""
    late = tuple(p.seat.member for p in s.roster.ranks(of) if p.join is None)
    if late and s.standing is not None and of not in s.roster.shut_out:
        reason = "the members wait no longer for it to learn"
        s.out.append(Abort(late, AbortExchange(s.standing.epoch, (), reason)))


def _announce(s: Situation, formation: Formation, diverged: tuple[int, ...]) -> None:
    """Save, then announce; what was asked is answered."""
    previous = s.previous
    floor = max(s.floor, s.forgotten, *([previous.epoch] if previous is not None else []))
    new_term = s.by_hearsay or (s.began and (previous is None or formation.start == "restore"))
    least = s.settings.least_term
    seen = max(s.ledger_term, s.roster.highest_term(), least - 1)
    epoch = next_epoch(floor, seen, new_term or floor.term < least)
    attempts = {of[0]: s.lessons.count(of) for of in formation.learners}
    told = announcement_of(formation, s.roster, epoch=epoch, attempts=attempts)
    told = msgspec.structs.replace(told, repairs=repairing(s, told))
    patience = max((s.lessons.patience(of) for of in formation.learners), default=1)
    limit_s = formation.limit_s or s.settings.hold_limit_s * patience
    hold_until = s.now + limit_s if told.hold else s.now
    s.undo = Undo(s.standing, s.diverged, s.episode, [])
    s.standing, s.floor, s.diverged = told, epoch, diverged
    s.episode = Episode(hold_until=hold_until, brief=frozenset(formation.brief))
    _answer(s, told)


def _answer(s: Situation, told: Announcement) -> None:
    assert s.undo is not None
    seats = [*told.members, *(e.seat for e in told.learners if not _trails_on(told, e))]
    for seat in seats:
        process = s.roster.processes[seat.member]
        if process.join is not None:
            s.undo.joins.append((process, process.join))
        process.join, process.told, process.answered_at = None, "", s.now
    s.out.append(Persist(Saved(told, s.diverged)))
    s.out.append(Announce(told, tuple(sorted(seat.member for seat in seats))))
    release_outsiders(s)


def _trails_on(told: Announcement, learner: Learner) -> bool:
    """Tell whether a learner is listed since an earlier epoch; its ask, if any, stays open."""
    return learner.trail is not None and learner.trail.epoch < told.epoch


def take_back(s: Situation, reason: str) -> None:
    """Undo an announcement that could not be saved; its epoch is not used again."""
    if s.undo is None:
        return
    s.standing, s.diverged, s.episode = s.undo.standing, s.undo.diverged, s.undo.episode
    for process, join in s.undo.joins:
        if process.join is None and not s.roster.lost(process.seat.member):
            process.join, process.answered_at = join, None
    s.undo = None
    s.retry_at = s.now + 1.0
    s.tell(f"the quorum cannot be saved: {reason}")
