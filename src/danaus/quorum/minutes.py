"""The journal lines of the quorum service: every decision with its reason (Q-8).

Owns the names and facts of these lines.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import Any

from danaus.core.clock import time_of_day
from danaus.core.journal import Journal
from danaus.quorum.events import (
    Abort,
    Announce,
    Fence,
    Instruction,
    NoteDivergence,
    NoteFinding,
    NotifyPending,
    Refuse,
    Release,
    TellWaiting,
)
from danaus.quorum.messages import MemberId, Seat

KEPT = 50
"""How many of the last lines are kept for who looks at the service's page."""

REMINDED = "quorum_change_pending"
_REPEATED = (NotifyPending, Abort)
"""What members are told again with each heartbeat, until they have heard it."""

Facts = dict[str, Any]


class Minutes:
    """Writes what the service decides and hears into a run's journal.

    Args:
        journal: None: nothing is written.

    Attributes:
        recent: The last lines, with the time of day.
        counts: How many lines there were of each event.
    """

    def __init__(self, journal: Journal | None) -> None:
        self._journal = journal
        self._waiting = ""
        self._said: set[tuple[object, ...]] = set()  # of one epoch
        self._said_of = ""
        self.recent: deque[Facts] = deque(maxlen=KEPT)
        self.counts: Counter[str] = Counter()

    def note(self, event: str, **facts: Any) -> None:
        """Write one line."""
        self._remember({"at": round(time_of_day(), 3), "event": event, **facts})
        self.counts[event] += 1
        if self._journal is not None:
            self._journal.record(event, **facts)

    def _remember(self, line: Facts) -> None:
        """Keep a line; a change that members are reminded of is kept once."""
        same = [
            each for each in self.recent
            if each["event"] == line["event"] == REMINDED
            and (each["epoch"], each["reason"]) == (line["epoch"], line["reason"])
        ]  # fmt: skip
        if not same:
            self.recent.append(line)

    def decided(self, instruction: Instruction) -> None:
        """Write down a decision as it is carried out."""
        if isinstance(instruction, TellWaiting):
            if instruction.reason != self._waiting:
                self._waiting = instruction.reason
                self.note("quorum_waiting", reason=instruction.reason)
        elif (line := _LINES.get(type(instruction))) is not None:
            event, facts = line(instruction)
            if not isinstance(instruction, _REPEATED) or self._is_news(event, facts):
                self.note(event, **facts)

    def _is_news(self, event: str, facts: Facts) -> bool:
        """Leave those out of a line who were told the same before; tell whether any are left."""
        if facts["epoch"] != self._said_of:
            self._said_of = facts["epoch"]
            self._said.clear()
        news = [name for name in facts["told"] if (event, facts["reason"], name) not in self._said]
        self._said.update((event, facts["reason"], name) for name in news)
        facts["told"] = news
        return bool(news)


def seat_facts(seat: Seat) -> Facts:
    """Return who sits there, in the words of the run's journal."""
    return {**member_facts(seat.member), "process_id": seat.process_id}


def member_facts(member: MemberId) -> Facts:
    """Return who a process is, in the words of the run's journal."""
    return {
        "replica": member.replica_id,
        "rank": member.rank,
        "incarnation": member.incarnation,
    }


def _names(members: Iterable[MemberId]) -> list[str]:
    return [str(member) for member in members]


def _announced(said: Announce) -> tuple[str, Facts]:
    told = said.announcement
    return "quorum_announced_again" if said.again else "quorum_announced", {
        "epoch": str(told.epoch),
        "members": _names(seat.member for seat in told.members),
        "learners": _names(learner.seat.member for learner in told.learners),
        "committed_step": told.committed_step,
        "outcome": told.outcome.verdict,
        "outcome_step": told.outcome.step,
        "outcome_reason": told.outcome.reason,
        "start": told.start,
        "hold": told.hold,
        "finished": told.finished,
        "repairs": list(told.repairs),
        "reason": told.reason,
        "told": _names(said.to),
    }


def _pending(said: NotifyPending) -> tuple[str, Facts]:
    told = said.message
    return REMINDED, {
        "epoch": str(told.epoch),
        "reason": told.reason,
        "told": _names(said.members),
    }


def _aborted(said: Abort) -> tuple[str, Facts]:
    told = said.message
    return "quorum_aborted", {
        "epoch": str(told.epoch),
        "dead": _names(told.dead),
        "reason": told.reason,
        "told": _names(said.members),
    }


def _fenced(said: Fence) -> tuple[str, Facts]:
    return "quorum_fenced", {**seat_facts(said.seat), "reason": said.reason}


def _refused(said: Refuse) -> tuple[str, Facts]:
    told = said.message
    return "quorum_refused", {
        "reason": told.reason,
        "to_do": told.to_do,
        "step": told.step,
        "fingerprints": told.diverged,
        "told": _names(said.members),
    }


def _released(said: Release) -> tuple[str, Facts]:
    told = said.message
    return "quorum_released", {
        "reason": told.reason,
        "save": told.save,
        "told": _names(said.members),
    }


def _diverged(said: NoteDivergence) -> tuple[str, Facts]:
    return "divergence_found", {
        "step": said.step,
        "fingerprints": said.fingerprints,
        "minority": list(said.minority),
        "reason": said.reason,
    }


def _found(said: NoteFinding) -> tuple[str, Facts]:
    found = said.finding
    return _FOUND[found.kind], {**seat_facts(said.seat), "step": found.step, "reason": found.reason}


_FOUND = {
    "slow": "straggler_found",
    "not_slow": "straggler_recovered",
    "miscomputes": "miscomputation_found",
}

_LINES: dict[type, Callable[[Any], tuple[str, Facts]]] = {
    Announce: _announced,
    NotifyPending: _pending,
    Abort: _aborted,
    Fence: _fenced,
    Refuse: _refused,
    Release: _released,
    NoteDivergence: _diverged,
    NoteFinding: _found,
}
