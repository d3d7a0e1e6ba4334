"""Each rule that a run's truth rests on, broken: the simulation must notice.

A mutant is a change of one line in a pure function.  It must violate a promise within a bounded
number of schedules of the family in which its rule matters; the machines as they are must not.
What no history can bring about (a member prepared in an epoch that another never entered) is
held by ``tests/unit/quorum/test_resolve.py`` and ``tests/unit/ft``.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from tests.simulation import families
from tests.simulation.engine import Violation
from tests.simulation.families import Family
from tests.simulation.mutants import put_in_place
from tests.simulation.world import World, run

MOST_SCHEDULES = 400
SOUND_SCHEDULES = 10

Change = tuple[str, str]


@dataclass(frozen=True)
class Mutant:
    """A broken rule: where which text is replaced, and the histories that tell."""

    rule: str
    family: Family
    changes: tuple[tuple[str, tuple[Change, ...]], ...]


def mutant(rule: str, family: Family, where: str, *changes: Change) -> Mutant:
    return Mutant(rule, family, ((where, changes),))


AGREEMENT = "danaus.quorum.agreement:"
RESOLVE, CONVENE = "danaus.quorum.resolve:", "danaus.quorum.convene:"
DECISION, STATE = "danaus.quorum.decision:", "danaus.quorum.state:QuorumMachine."
FORMING, STEP = "danaus.quorum.forming:", "danaus.ft.step:StepMachine."
RIFTS, ROSTER = "danaus.quorum.rifts:Rifts.", "danaus.quorum.roster:Roster."
TALLY, SAVING = "danaus.ft.tally:", "danaus.ft.saving:"

OF_ANY_INCARNATION = """(report := next((
        r for o in s.roster.processes if (o.replica_id, o.rank) == (member.replica_id, member.rank)
        and (r := s.roster.report(o)) is not None), None)) is not None"""
NEVER_TOLD_AGAIN = (
    STATE + "_knows_not",
    (("return not known or max(known) < told", "return False"),),
)

OUTCOME = [
    mutant(
        "a step that any joiner has committed is committed",
        families.committed_by_one_rank,
        RESOLVE + "resolve",
        ("if _lags(survivors, committed):", "if False:"),
    ),
    mutant(
        "what all who are left were prepared for is committed",
        families.committed_and_dead,
        RESOLVE + "_decide",
        ('"commit",', '"discard",'),
    ),
    mutant(
        "a refusal that is known discards",
        families.seen_refusal,
        RESOLVE + "_decide",
        (" or kept.refused_seen", ""),
    ),
    mutant(
        "who had not voted discards",
        families.any_history,
        RESOLVE + "_decide",
        ("    if unprepared:", "    if False:"),
    ),
    mutant(
        "a refusal discards",
        families.seen_refusal,
        RESOLVE + "_decide",
        ("    if refused:", "    if False:"),
    ),
    mutant(
        "nothing but a commit is applied",
        families.any_history,
        RESOLVE + "follows",
        ('outcome.verdict == "commit"\n        and ', ""),
    ),
    mutant(
        "unequal digests discard",
        families.unequal_sums,
        RESOLVE + "_differing",
        ('f"reduced gradients of step {step}": kept.digest,', ""),
    ),
    mutant(
        "unequal states before the step discard",
        families.unequal_states,
        RESOLVE + "_differing",
        ('f"states before step {step}": survivors[member].fingerprint,', ""),
    ),
    mutant(
        "ranks are compared with their like only",
        families.committed_and_dead_ranks,
        RESOLVE + "_differing",
        ("(what, member.rank)", "(what, 0)"),
    ),
    mutant(
        "the restarted count as dead, not as unprepared",
        families.committed_and_restarted,
        CONVENE + "open_outcome",
        (
            "(report := s.roster.report(member)) is not None",
            OF_ANY_INCARNATION,
        ),
        ("and s.roster.is_newest(incarnation_of(member))", ""),
        ("and not s.roster.loss(incarnation_of(member))", ""),
    ),
    mutant(
        "a gradient kept from another attempt is not applied",
        families.two_attempts,
        RESOLVE + "follows",
        ("and outcome.epoch in (None, kept.epoch)", ""),
    ),
    mutant(
        "an outcome is saved before it is told",
        families.any_history,
        CONVENE + "_answer",
        ("s.out.append(Announce(told", "s.out.insert(-1, Announce(told"),
    ),
    Mutant(
        "an outcome that was saved stands",
        families.told_to_few,
        (
            (CONVENE + "open_outcome", (("if any(follows(", "if False and any(follows("),)),
            NEVER_TOLD_AGAIN,
        ),
    ),
]

QUORUM = [
    mutant(
        "without its disk the service waits for all of the largest quorum it hears of",
        families.lost_disk_and_lost_members,
        DECISION + "_unsafe",
        ("if view.disk_lost:", "if False:"),
    ),
    mutant(
        "what the ledger tells of is not forgotten",
        families.lost_disk_and_lost_members,
        FORMING + "why_restore",
        ("agreement.step < history.ledger_steps", "False"),
    ),
    mutant(
        "a quorum follows another only with a member of it",
        families.only_newcomers,
        DECISION + "_unsafe",
        ('if fates and "back" not in fates.values()', "if False"),
    ),
    mutant(
        "who is out of reach is not taken for dead",
        families.all_out_of_reach,
        DECISION + "_unsafe",
        ('any(f != "dead" for f', 'any(f not in ("dead", "gone") for f'),
    ),
    mutant(
        "a rollback begins a new term",
        families.any_history,
        CONVENE + "_announce",
        ("new_term = s.by_hearsay or", "new_term = False and"),
    ),
    mutant(
        "where all are dead the run goes on from a checkpoint",
        families.any_history,
        FORMING + "why_restore",
        ("if decision.all_dead:", "if False:"),
    ),
    mutant(
        "who is left behind is fenced first",
        families.any_history,
        CONVENE + "_fences",
        ('return f"fencing {member}: {process.fence_reason}"', "continue"),
    ),
    mutant(
        "of two that do not reach each other one is left out",
        families.apart,
        RIFTS + "left_out",
        ("while open_pairs:", "while False:"),
    ),
    mutant(
        "one that has promised nothing is not left out",
        families.apart_from_all,
        ROSTER + "gone",
        ("if why and self.has_promised(of):", "if why:"),
    ),
    mutant(
        "whoever is to make room is waited for until it has promised to take no part",
        families.makes_room,
        ROSTER + "gone",
        ("if why and self.has_promised(of):", "if why:"),
    ),
    Mutant(
        "an ask that comes again is not another",
        families.echoes,
        (
            (STATE + "_join_asked", (("if join.number <= process.number:", "if False:"),)),
            NEVER_TOLD_AGAIN,
        ),
    ),
]

MEMBER = [
    mutant(
        "a member commits with all votes only",
        families.any_history,
        TALLY + "tally",
        ("if len(ballots) < len(members):", "if False:"),
    ),
    mutant(
        "a member commits with no vote against",
        families.alone_against,
        TALLY + "objection",
        ("if refused:", "if False:"),
    ),
    mutant(
        "a member commits with one digest only",
        families.unequal_sums,
        TALLY + "objection",
        ('if against := _differing(group, "digest"):', "if False:"),
    ),
    mutant(
        "unequal states veto the step",
        families.unequal_states,
        TALLY + "objection",
        ("against = veto and", "against = False and"),
    ),
    mutant(
        "nothing is committed alone",
        families.any_history,
        STEP + "_counted",
        ('if count.count == "commit":', 'if count.count != "refused":'),
    ),
    mutant(
        "joining promises no vote in an older epoch",
        families.any_history,
        STEP + "_in",
        ("self.stage is stage", "self.stage in (stage, Stage.JOINING)"),
    ),
    mutant(
        "a refusal that is known is told",
        families.any_history,
        STEP + "_counted",
        ("refused_seen=refused,", "refused_seen=False,"),
    ),
    mutant(
        "older announcements are not followed",
        families.any_history,
        STEP + "_announced",
        ("told.epoch <= self._last_epoch", "False"),
    ),
    mutant(
        "members that are held take no step",
        families.a_learner,
        STEP + "_go_on",
        ("told.hold or ", ""),
    ),
    mutant(
        "a change that another names is followed by all at once",
        families.a_learner,
        STEP + "_counted",
        ("self._leave or count.change_pending", "self._leave"),
    ),
    mutant(
        "a transfer that fails leaves nothing that counts",
        families.a_learner_that_fails,
        STEP + "_follow",
        ("Stage.LEARNING\n        self.state = SPOILED", "Stage.LEARNING"),
    ),
    mutant(
        "a restore that fails leaves nothing that counts",
        families.a_restore_that_fails,
        STEP + "_follow",
        ("Stage.RESTORING\n        self.state = SPOILED", "Stage.RESTORING"),
    ),
    mutant(
        "a checkpoint of a flipped bit is not restored",
        families.a_spoiled_checkpoint,
        SAVING + "verdict",
        ('"agreed" if written in seen else "wrong"', '"agreed"'),
    ),
]

LEARNER = [
    mutant(
        "a learner enters at the members' step only",
        families.a_donor_that_dies,
        AGREEMENT + "_equals",
        ("if place.step != followed.step:", "if False:"),
        ("return place.fingerprint == followed.fingerprint", "pass"),
    ),
    mutant(
        "a learner enters with the members' state only",
        families.a_wrong_transfer,
        AGREEMENT + "_equals",
        ("return place.fingerprint == followed.fingerprint", "return True"),
    ),
    mutant(
        "a learner that has caught up is waited for",
        families.a_learner,
        FORMING + "announcement_of",
        ("hold=any(each.trail is None for each in learners)", "hold=False"),
    ),
    mutant(
        "a learner trails on with donors of its own only",
        families.a_donor_that_dies,
        "danaus.quorum.trailing:carried",
        ("if incarnation_of(d.member) in inside", ""),
    ),
]

STILL_PREPARED = """past.seen_epoch, past.quorum
    self._open = OpenStep(self.state.step + 1, past.seen_epoch or Epoch(1, 1), "prepared")"""

REPAIR = [
    mutant(
        "a name that was given up is never fenced",
        families.a_rank_that_is_lost,
        "danaus.quorum.repairs:renounce",
        ("roster.bury(member, reason, s.now, clean=False)", "pass"),
    ),
    mutant(
        "whoever has given its name up votes under it no more",
        families.a_rank_that_is_lost,
        STEP + "renounce",
        ("self.stage, self._open = Stage.FINISHED, None", "pass"),
    ),
    mutant(
        "what was prepared under a name that was given up is prepared no more",
        families.a_rank_that_is_lost,
        STEP + "take_up",
        ("past.seen_epoch, past.quorum", STILL_PREPARED),
    ),
    mutant(
        "a process that goes on under another name is as dead to an open step as a new one",
        families.committed_and_repaired,
        CONVENE + "open_outcome",
        (
            "(report := s.roster.report(member)) is not None",
            OF_ANY_INCARNATION,
        ),
        ("and s.roster.is_newest(incarnation_of(member))", ""),
        ("and not s.roster.loss(incarnation_of(member))", ""),
    ),
]

MUTANTS = [*OUTCOME, *QUORUM, *MEMBER, *LEARNER, *REPAIR]
FAMILIES = list({m.family: None for m in MUTANTS})


@pytest.mark.timeout(600)
@pytest.mark.parametrize("broken", MUTANTS, ids=lambda m: m.rule)
def test_a_broken_rule_is_noticed(broken: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    for where, changes in broken.changes:
        put_in_place(monkeypatch, where, *changes)
    for seed in range(MOST_SCHEDULES):
        try:
            World(broken.family(seed)).run()
        except Violation:
            return
    pytest.fail(f"{MOST_SCHEDULES} schedules did not notice that this is broken: {broken.rule}")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(SOUND_SCHEDULES))
def test_the_rules_as_they_are_hold_in_the_same_schedules(seed: int) -> None:
    for family in FAMILIES:
        run(family(seed))
