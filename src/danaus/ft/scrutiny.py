"""What a member makes of the votes besides counting them.

Owns ``Scrutiny``: who is slow, whose leaf came out wrong, and when to give a step up.  All members
see the same ballots and come to the same; one of them tells the quorum service of another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec

from danaus.core.errors import ShareUnfit, StepImpossible
from danaus.ft.attempt import Attempt
from danaus.ft.audit import Audits, Disagreement
from danaus.ft.observer import Observer
from danaus.ft.refusals import MOST_TRIES, Refusals
from danaus.ft.step_events import Ballot, Compute, Votes
from danaus.ft.step_plan import StepPlan
from danaus.ft.stragglers import PaceWatch
from danaus.ft.tally import objection
from danaus.quorum.messages import Finding, MemberId


class Scrutiny:
    """Look at every ballot of every step.

    Args:
        me: This member.
        plan: What a step is, and when somebody counts as slow or wrong.
        tell: Told what the service must know of another member.
        agree: Tells whether any rank of this replica says so.
        observer: Told of steps that members refuse.
    """

    def __init__(
        self,
        me: MemberId,
        plan: StepPlan,
        *,
        tell: Callable[[Finding], None],
        agree: Callable[[bool], bool],
        observer: Observer,
    ) -> None:
        self._me, self._tell, self._agree, self._observer = me, tell, agree, observer
        self._refusals = Refusals()
        self._pace = PaceWatch(me, plan.pace)
        self._audits = Audits(me, plan.audit)

    def count(self, step: int, *, unfit: bool) -> None:
        """Count a try of a step, whose sum may be unfit to be applied."""
        self._refusals.count(step, unfit=unfit)

    def audited(
        self, order: Compute, runs: Mapping[str, range], hosts: Mapping[str, str]
    ) -> int | None:
        """Return the leaf that this replica computes or compares for the audit (T-8).

        The same to every rank of the replica: not each may have seen why a step is tried again.
        """
        disputed = self._audits.is_disputed(order.step)
        if order.attempt > 1:
            disputed = self._agree(disputed)
        return self._audits.leaf(order.step, runs, hosts, disputed=disputed)

    def filled(self, ballot: Ballot, attempt: Attempt | None) -> Ballot:
        """Return a ballot with what the others look at besides the vote."""
        if attempt is None:
            return ballot
        return msgspec.structs.replace(ballot, pace_s=attempt.pace_s, audited=attempt.audits)

    def look(self, mine: Ballot, votes: Votes) -> None:
        """Look at every member's ballot.

        Raises:
            ShareUnfit: What this replica alone computes is not fit to be applied, or wrong.
            StepImpossible: The step was tried once too often.
        """
        for found in self._pace.observe(mine.step, {m: v.pace_s for m, v in votes.items()}):
            self._tell(found)
        digests = {member: ballot.audited for member, ballot in votes.items()}
        disagreements = self._audits.settle(mine.step, digests)
        if against := objection(votes.values(), veto=False):
            self._observer.refused(mine.step, against)
            self._refusals.judge(mine, votes, against)
        for each in disagreements:
            self._name(mine.step, each, votes)
        if self._audits.num_disputes >= MOST_TRIES:
            raise StepImpossible(step=mine.step, why=_undecided(disagreements))

    def _name(self, step: int, found: Disagreement, members: Iterable[MemberId]) -> None:
        """Have whoever is wrong end."""
        wrong = {member.replica_id for member in found.wrong}
        if self._me.replica_id in wrong:
            raise ShareUnfit(step=step, why=f"it computes wrongly, {found.words}", stays_out=True)
        teller = min((m for m in members if m.replica_id not in wrong), default=None)
        if self._me == teller:
            for member in sorted(found.wrong):
                self._tell(Finding(self._me, member, "miscomputes", step, found.words))


def _undecided(found: Iterable[Disagreement]) -> str:
    words = "; ".join(each.words for each in found)
    return (
        f"{words}, {MOST_TRIES} times in a row, and no majority says who is wrong: what computes "
        "it is not deterministic, or a device is broken; test them, or switch the audit off"
    )
