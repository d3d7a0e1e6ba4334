"""What must be true of every run, checked while it runs.

The monitor sees everything at once, as no process can: it knows who is really dead, what is
really on every disk, and which votes were really cast.
"""

from __future__ import annotations

from typing import Any

from tests.simulation.engine import Violation
from tests.simulation.history import against, check_history, rolled_back
from tests.simulation.lessons import replayed_truly, teaches_truly
from tests.simulation.member import Member
from tests.simulation.model import NUM_LEAVES, Kept

from danaus.ft.step_events import Ballot, Discard, Finish, Restore
from danaus.quorum.events import Saved
from danaus.quorum.messages import Announcement, Epoch, MemberId, StepReport

Attempt = tuple[int, Epoch]


class Monitor:
    """Everything that has happened, and the promises it must keep."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self.announced: list[Announcement] = []  # as persisted, over all lives of the service
        self.on_disk: Epoch | None = None
        self.wipes = 0
        # What excuses the next announcement, and no other.
        self.forgotten = False  # the service has lost its disk
        self.resumed = False  # a person has said that nothing of the run is alive
        self.diverged = False  # the service has found that replicas differ
        self.members: dict[Epoch, tuple[MemberId, ...]] = {}
        self.votes: dict[Attempt, dict[MemberId, Ballot]] = {}
        self.promised: dict[MemberId, Epoch] = {}  # no vote at or below it any more
        self.lineage: dict[int, tuple[Epoch, dict[int, tuple[str, str]]]] = {}
        self.rollbacks: list[tuple[int, int]] = []  # term, step; as announced
        self.recorded: list[tuple[int, int]] = []  # and as followed and written down
        self.dropped: dict[Attempt, MemberId] = {}
        self.applied: dict[Attempt, MemberId] = {}
        self.ledger: list[tuple[MemberId, int, Epoch, str, tuple[int, ...]]] = []
        self.seen: dict[MemberId, Epoch] = {}
        self.formed: dict[tuple[Epoch, int], tuple[MemberId, str]] = {}
        self.refusals: dict[Attempt, set[MemberId]] = {}
        self.holding: set[Epoch] = set()
        self.sent_away: set[tuple[str, int]] = set()  # who is to make room
        self.apart: set[tuple[str, int]] = set()  # who was said not to reach, or to be reached
        self.alone = False  # a flip in a quorum of one replica cannot be noticed
        self.flips = 0
        self.ends: list[MemberId] = []

    def ledger_steps(self) -> int:
        """Return how far the run has come, as its ledgers tell: what was rolled back is no more."""
        steps = [(epoch.term, step) for _, step, epoch, *_ in self.ledger]
        return max([*steps, *self.recorded], default=(0, 0))[1]

    def ledger_term(self) -> int:
        """Return the highest term that they name."""
        terms = [epoch.term for _, _, epoch, *_ in self.ledger]
        return max(terms + [term for term, _ in self.recorded], default=0)

    # -- the service ----------------------------------------------------------------------

    def persisted(self, saved: Saved) -> None:
        told = saved.announcement
        if told.epoch == self.on_disk:
            return
        if self.on_disk is not None and told.epoch < self.on_disk:
            raise Violation("Q-1", f"epoch {told.epoch} was saved after {self.on_disk}")
        last = self.announced[-1] if self.announced else None
        # What only a lost disk knew, and nobody who lives, may come again.
        known = [last.epoch] if last and not self.wipes else []
        known += [m.machine.report().seen_epoch for m in self.world.living()] if self.wipes else []
        if any(epoch is not None and told.epoch <= epoch for epoch in known):
            raise Violation("Q-1", f"epoch {told.epoch} is used again")
        self.on_disk = told.epoch
        if last:
            self._follows(last, told)
        self._keeps(told, last)
        teaches_truly(told, last)
        self._spoils(told, last)
        self._resolves(told)
        self.announced.append(told)
        self.forgotten = self.resumed = self.diverged = False
        if told.epoch in self.members:
            self._forget(told.epoch)
        self.members[told.epoch] = told.record().members
        if told.hold:
            self.holding.add(told.epoch)
        if told.finished:
            self._agree(told)

    def _forget(self, epoch: Epoch) -> None:
        """Take an epoch as new that was used once, by those who died without telling of it."""
        for told in (self.votes, self.dropped, self.applied):
            for attempt in [attempt for attempt in told if attempt[1] == epoch]:
                del told[attempt]
        self.holding.discard(epoch)
        for key in [key for key in self.formed if key[0] == epoch]:
            del self.formed[key]

    def _follows(self, last: Announcement, told: Announcement) -> None:
        """Q-3: a member of the last quorum takes part and has promised, or all of it are dead."""
        members = {seat.member for seat in last.members}
        taking = {seat.member for seat in told.members}
        taking |= {learner.seat.member for learner in told.learners}
        promised = {m for m in members & taking if self.promised.get(m) is not None}
        dead = all(not self.world.processes[member].alive for member in members)
        if not promised and not dead and not self.resumed:
            raise Violation(
                "Q-3", f"{told.epoch} has no member of {last.epoch}, of which some are alive"
            )
        lost = {
            (member.replica_id, member.incarnation)
            for member in members
            if not self.world.processes[member].alive or self.world.tried_to_fence(member)
        }
        for member in sorted(members - taking):  # a replica is lost with its first rank
            left = (member.replica_id, member.incarnation) not in lost
            left = left and not self._has_promised(member, last.epoch)
            left = left and not self._came_too_late(member, told)
            if left and not self.resumed and not self.forgotten:
                raise Violation("Q-7", f"{told.epoch} leaves {member} behind, which is not fenced")

    def _has_promised(self, member: MemberId, epoch: Epoch) -> bool:
        """Tell whether one that is to be left out has promised no vote in ``epoch``."""
        of = (member.replica_id, member.incarnation)
        ranks = [MemberId(of[0], rank, of[1]) for rank in range(self.world.plan.ranks)]
        promised = [self.promised.get(rank) for rank in ranks]
        return of in self.apart | self.sent_away and all(
            to is not None and to >= epoch for to in promised
        )

    def _came_too_late(self, member: MemberId, told: Announcement) -> bool:
        """Tell whether one whose heart is heard did not ask in time: it may ask again, and learn.

        Nothing that it knows can be committed any more: the others have promised no vote.
        """
        if f"{member.replica_id} did not ask within" not in told.reason:
            return False
        known = self.world.service.machine._s
        silent_s = known.now - known.roster.processes[member].beat_at
        return bool(silent_s <= known.settings.heartbeat_limit_s)

    def _keeps(self, told: Announcement, last: Announcement | None) -> None:
        """The committed step never falls but by a rollback, and no rollback is without cause."""
        reached = max(self.lineage, default=0)
        if told.start == "restore":
            lost = last is None or all(
                not self.world.processes[seat.member].alive for seat in last.members
            )
            spoiled = last is not None and last.start == "restore" and self.world.damaged
            caused = lost or spoiled or self.diverged or self.resumed
            if told.committed_step < reached and not caused:
                raise Violation(
                    "T-7", f"{told.epoch} goes back to {told.committed_step} from {reached}"
                )
            self._roll_back(told.committed_step, told.epoch.term)
        elif told.committed_step < reached:
            raise Violation(
                "T-1", f"{told.epoch} stands at {told.committed_step}, {reached} was committed"
            )

    def _spoils(self, told: Announcement, last: Announcement | None) -> None:
        """See where a flipped bit cannot be noticed: nobody is left who knows better."""
        if told.start != "live":
            return
        models = {seat.member: self.world.processes[seat.member].model for seat in told.members}
        known = [seat.member for seat in last.members] if last else []
        learners = {learner.seat.member for learner in told.learners}
        left = [self.world.processes[member].model for member in known if member in learners]
        better = [m for m in left if not m.tainted and m.step == told.committed_step]
        if models and all(model.tainted for model in models.values()) and not better:
            self.alone = True

    def _resolves(self, told: Announcement) -> None:
        """T-1: committed only where all who are left were prepared and none knows a refusal."""
        outcome = told.outcome
        if outcome.verdict != "commit" or outcome.epoch is None:
            return
        attempt = (outcome.step, outcome.epoch)
        if attempt in self.applied:
            return
        taking = {seat.member for seat in told.members}
        taking |= {learner.seat.member for learner in told.learners}
        left = taking & set(self.members.get(outcome.epoch, ()))
        cast = self.votes.get(attempt, {})
        for member in sorted(left):
            if member not in cast or cast[member].vote != "prepared":
                raise Violation("T-1", f"{told.epoch} commits {attempt}: {member} is not prepared")
        if against([cast[member] for member in sorted(left)]):
            raise Violation("Q-9", f"{told.epoch} commits {attempt} of unequal replicas")
        if knows := left & self.refusals.get(attempt, set()):
            raise Violation("T-1", f"{told.epoch} commits {attempt}, which {knows} know refused")

    def _agree(self, told: Announcement) -> None:
        """Q-9: a run that is done ends with one state."""
        by_rank: dict[int, set[str]] = {}
        for seat in told.members:
            report = self.world.processes[seat.member].machine.report()
            by_rank.setdefault(seat.member.rank, set()).add(report.fingerprint)
        if any(len(prints) > 1 for prints in by_rank.values()):
            raise Violation("Q-9", f"{told.epoch} ends the run with unequal states {by_rank}")

    def _roll_back(self, step: int, term: int) -> None:
        self.rollbacks.append((term, step))
        for later in [s for s, (epoch, _) in self.lineage.items() if s > step]:
            if self.lineage[later][0].term < term:
                del self.lineage[later]

    def announcing(self, told: Announcement) -> None:
        # An older service may repeat what was saved before the disk of both was lost.
        saved = [self.world.disk.announcement] if self.world.disk else self.announced
        if _told(told) not in map(_told, saved):
            raise Violation("Q-1", f"{told.epoch} is announced, but not saved as it is told")

    def wiped(self) -> None:
        self.wipes += 1
        self.forgotten = True
        self.on_disk = None

    # -- a member ----------------------------------------------------------------------

    def joining(self, member: Member, report: StepReport) -> None:
        epoch = member.machine.epoch
        if epoch is not None:
            self.promised[member.who] = epoch
        else:
            self.promised.setdefault(member.who, Epoch(0, 0))
        if report.fingerprint and (report.committed_step, report.fingerprint.split("!")[0]) != (
            member.model.step,
            member.model.chain,
        ):
            raise Violation("H-1", f"{member.name} reports a state that it does not hold")
        left = report.open_step
        if left is None:
            return
        if epoch is None:
            raise Violation("H-3", f"{member.name} holds {left.step} open of another name's")
        known = [
            b for b in member.known_votes.values() if (b.step, b.epoch) == (left.step, left.epoch)
        ]
        if left.vote == "refused" or against(known):
            self.refusals.setdefault((left.step, left.epoch), set()).add(member.who)
            if not left.refused_seen:
                raise Violation("T-1", f"{member.name} keeps a refusal of {left.step} to itself")

    def renounced(self, member: Member) -> None:
        """H-3: whoever gives its name up promises no vote under it any more."""
        self.promised[member.who] = Epoch(10**9, 0)

    def unreached(self, member: Member, said: tuple[MemberId, ...]) -> None:
        """Note whom an asker says that it could not dial."""
        for each in (member.who, *said) if said else ():
            self.apart.add((each.replica_id, each.incarnation))

    def followed(self, member: Member, told: Announcement) -> None:
        before = self.seen.get(member.who)
        if before is not None and told.epoch <= before:
            raise Violation("Q-1", f"{member.name} follows {told.epoch} after {before}")
        self.seen[member.who] = told.epoch

    def forming(self, member: Member, told: Announcement) -> None:
        """Q-9, H-1: whoever counts in a quorum stands at one step with one state."""
        model = member.model
        if model.step != told.committed_step:
            raise Violation("H-1", f"{member.name} enters {told.epoch} at step {model.step}")
        if model.tainted:
            return
        other, print_ = self.formed.setdefault(
            (told.epoch, member.who.rank), (member.who, model.fingerprint)
        )
        if print_ != model.fingerprint:
            raise Violation(
                "Q-9", f"{member.name} and {other} enter {told.epoch} with unequal states"
            )

    def computing(self, member: Member, step: int, epoch: Epoch) -> None:
        """Q-2: where one vote names a change, all turn to the service after that step."""
        before = self.votes.get((step - 1, epoch), {})
        if any(ballot.change_pending for ballot in before.values()):
            raise Violation("Q-2", f"{member.name} goes on in {epoch}, which is to change")

    def voting(self, member: Member, ballot: Ballot) -> None:
        cast = self.votes.setdefault((ballot.step, ballot.epoch), {})
        if member.who in cast:
            raise Violation("T-1", f"{member.name} votes twice on {ballot.step} in {ballot.epoch}")
        if ballot.epoch in self.holding:
            raise Violation("H-1", f"{member.name} takes a step in {ballot.epoch}, which holds")
        promise = self.promised.get(member.who)
        if promise is not None and ballot.epoch <= promise:
            raise Violation(
                "T-1", f"{member.name} votes in {ballot.epoch} after it promised not to"
            )
        cast[member.who] = ballot

    def committed(self, member: Member, kept: Kept) -> None:
        """T-1: at all or at none; T-7: each sample once."""
        attempt = (kept.step, kept.epoch)
        model = member.model
        self.ledger.append((member.who, kept.step, kept.epoch, kept.digest, kept.leaves))
        if self._void(*attempt):
            return
        if kept.leaves != tuple(range(NUM_LEAVES)):
            raise Violation("T-3", f"step {kept.step} was made of leaves {kept.leaves}")
        if member.machine.epoch == kept.epoch:
            self._by_votes(member, attempt)
        if attempt in self.dropped:
            raise Violation(
                "T-1",
                f"{member.name} commits step {kept.step} of {kept.epoch}, "
                f"which {self.dropped[attempt]} was told to discard",
            )
        self.applied[attempt] = member.who
        if model.tainted and len({m.replica_id for m in self.members[kept.epoch]}) == 1:
            self.alone = True
        if not model.tainted:
            self._on_lineage(member, kept)

    def _by_votes(self, member: Member, attempt: Attempt) -> None:
        """A member that commits by itself has every member's vote behind it."""
        promise = self.promised.get(member.who)
        if promise is not None and promise >= attempt[1]:
            raise Violation("T-1", f"{member.name} commits {attempt[0]} after it joined")
        cast = self.votes.get(attempt, {})
        by_rank: dict[int, set[tuple[str, str]]] = {}
        for other in self.members[attempt[1]]:
            if other not in cast or cast[other].vote != "prepared":
                raise Violation(
                    "T-1", f"{member.name} commits step {attempt[0]}; {other} is not prepared"
                )
            prints = by_rank.setdefault(other.rank, set())
            prints.add((cast[other].digest, cast[other].fingerprint))
        if any(len(prints) > 1 for prints in by_rank.values()):
            raise Violation("Q-9", f"{member.name} commits step {attempt[0]} of unequal replicas")

    def _on_lineage(self, member: Member, kept: Kept) -> None:
        known = self.lineage.get(kept.step)
        if known and known[0] != kept.epoch:
            raise Violation(
                "T-1",
                f"{member.name} commits step {kept.step} of {kept.epoch}, "
                f"it was committed in {known[0]}",
            )
        prints = known[1] if known else {}
        mine = (kept.digest, member.model.chain)
        other = prints.setdefault(member.who.rank, mine)
        if other != mine:
            raise Violation("Q-9", f"{member.name} has {mine} after step {kept.step}, not {other}")
        self.lineage[kept.step] = (kept.epoch, prints)

    def _void(self, step: int, epoch: Epoch) -> bool:
        return rolled_back(self.rollbacks, step, epoch)

    def discarding(self, member: Member, order: Discard) -> None:
        attempt = (order.step, order.epoch)
        if member.model.step >= order.step:
            raise Violation("T-2", f"{member.name} discards step {order.step} that it committed")
        told = member.machine.report().last_quorum
        counted = told is not None and member.who in told.members
        restoring = member.machine.stage.value == "restoring"
        if not counted or restoring or self._void(*attempt):
            return  # a learner's own copy is nobody's outcome
        if attempt in self.applied:
            raise Violation(
                "T-1",
                f"{member.name} is told to discard step {order.step} of {order.epoch}, "
                f"which {self.applied[attempt]} committed",
            )
        self.dropped[attempt] = member.who

    def restored(self, member: Member, order: Restore) -> None:
        if member.model.tainted and not self.alone:
            raise Violation("Q-9", f"{member.name} restores a state that a bit flip has spoiled")
        self._roll_back(order.step, order.epoch.term)
        self.recorded.append((order.epoch.term, order.step))

    def finished(self, member: Member, order: Finish) -> None:
        told = member.machine.report().last_quorum
        if told is None or member.who not in told.members:
            return  # it came too late to take part
        if member.model.step != self.world.plan.steps:
            raise Violation("T-7", f"{member.name} finishes at step {member.model.step}")
        self.ends.append(member.who)
        check_history(self, member)

    def replayed(self, member: Member) -> None:
        replayed_truly(self.lineage, member)


def _told(told: Announcement) -> tuple[Any, ...]:
    """Return what of an announcement must be saved before anybody hears of it."""
    return told.epoch, told.members, told.outcome, told.committed_step
