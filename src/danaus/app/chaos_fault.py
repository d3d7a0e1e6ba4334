"""The language of faults: what is done to a run on purpose, to whom and when.

Owns ``Fault`` and what is legal in it; ``chaos_spec`` reads and writes it as text, ``chaos`` makes
plans of many, ``chaos_schedule`` tells when one is due, ``chaos_record`` what was struck.  Pure.

A fault in a plan leaves open what the seed shall choose; a fault that strikes is *resolved*: it
has an ``id``, a target, its step and every parameter.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from danaus.app.chaos_kinds import FACTS, PHASES, TARGETS, By, Facts, Hits
from danaus.app.events import CONTROLLER, FaultKind
from danaus.core.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault, or a rule that makes many.

    Args:
        kind: What is done.
        replica: To a worker of this replica, 4 for ``replica-4``; None: the seed chooses.
        rank: To this rank of the replica; None: the seed chooses.
        host: To this host, 1 for ``host1``, or to a worker there; None: the seed chooses.
        peer: Of a link, the other end: a host's place, or ``"controller"``; None: everybody.
        at_step: In this step or, where that is over, at once; None: no step is waited for.
        at_phase: At this moment of a step, one of ``PHASES``.
        after_s: So many seconds after the plan began.
        after_steps: So many steps after the plan began.
        every_s: Again each so many seconds.
        every_steps: Again each so many steps.
        times: How often; None: once, or without end where it comes again.
        all_back: Wait until every replica is a member and what was struck before is back.
        where: Of the places that its kind knows; None: the first of them.
        process: Of the processes that its kind knows; None: the first of them.
        amount: How much, in its kind's unit: times, percent or seconds; None: the kind's own.
        for_s: How long it lasts, in seconds; None: the kind's own.
        one_way: Of a link, only from ``host`` to ``peer``.
        id: What the run's journal calls it; given when it is resolved.

    Raises:
        ConfigError: It makes no sense.
    """

    kind: FaultKind
    replica: int | None = None
    rank: int | None = None
    host: int | None = None
    peer: int | str | None = None
    at_step: int | None = None
    at_phase: str | None = None
    after_s: float | None = None
    after_steps: int | None = None
    every_s: float | None = None
    every_steps: int | None = None
    times: int | None = None
    all_back: bool = False
    where: str | None = None
    process: str | None = None
    amount: float | None = None
    for_s: float | None = None
    one_way: bool = False
    id: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        if problem := next(_problems(self), None):
            what, needed = problem
            raise ConfigError(f"fault {self.kind.value!r}: {what}", needed)

    @property
    def facts(self) -> Facts:
        """What is known of its kind."""
        return FACTS[self.kind]

    @property
    def recurs(self) -> bool:
        """Tell whether it strikes again and again."""
        return self.every_s is not None or self.every_steps is not None

    @property
    def by(self) -> By:
        """Who strikes: a moment of a step, and most places, only the victim itself can find."""
        elsewhere = self.kind is FaultKind.HANG and self.where not in (None, "stop")
        return "inside" if self.at_phase is not None or elsewhere else self.facts.by

    @property
    def victim(self) -> str:
        """The kind of process that it hits."""
        return self.process or next(iter(self.facts.processes), "worker")

    @property
    def is_planned(self) -> bool:
        """Tell whether a worker can be told of it beforehand, and strike in exactly that step."""
        waits = self.recurs or self.all_back
        return self.by == "inside" and self.at_step is not None and not waits


Problem = tuple[str, str]
"""What is wrong, and what was needed."""


def _problems(fault: Fault) -> Iterator[Problem]:
    if fault.kind not in FACTS:
        yield "nobody can do that on purpose", f"one of {', '.join(FACTS)}"
        return
    yield from _target_problems(fault)
    yield from _time_problems(fault)
    yield from _number_problems(fault)
    facts = fault.facts
    for key, legal in (("where", facts.where), ("process", facts.processes), ("at_phase", PHASES)):
        value = getattr(fault, key)
        if value is not None and legal and value not in legal:
            yield f"{key} is {value!r}", f"one of {', '.join(legal)}"
    for key in ("where", "process", "amount", "for", "one_way"):
        value = getattr(fault, "for_s" if key == "for" else key)
        if value is not None and value is not False and key not in facts.keys:
            yield f"it takes no {key}", f"it takes {', '.join(facts.keys) or 'none'}"


def _target_problems(fault: Fault) -> Iterator[Problem]:
    legal = targets(fault)
    for key in ("replica", "rank", "host", "peer"):
        if getattr(fault, key) is not None and key not in legal:
            takes = f"it takes {' and '.join(legal)}" if legal else "it takes no target"
            yield f"it takes no {key}", takes
    if isinstance(fault.peer, str) and fault.peer != CONTROLLER:
        yield f"peer is {fault.peer!r}", f"a place from 0, or {CONTROLLER}"
    if fault.host is not None and fault.host == fault.peer:
        yield f"host and peer are both {fault.host}", "two hosts"
    if fault.replica is not None and fault.host is not None:
        yield "replica and host are both named", "one of them"
    if fault.where not in (None, "stop") and fault.victim != "worker":
        yield f"a {fault.victim} cannot hang in {fault.where!r}", "where=stop, or process=worker"


def targets(fault: Fault) -> tuple[str, ...]:
    """Return the keys that name this fault's target."""
    hits = fault.facts.hits
    return TARGETS[_VICTIMS.get(fault.victim, "nothing") if hits == "worker" else hits]


_VICTIMS: dict[str, Hits] = {"worker": "worker", "nursery": "host", "host_agent": "host"}


def _time_problems(fault: Fault) -> Iterator[Problem]:
    starts = (fault.at_step, fault.after_s, fault.after_steps)
    if sum(each is not None for each in starts) > 1:
        yield "at_step and after are both named", "one of them"
    if fault.every_s is not None and fault.every_steps is not None:
        yield "every is named twice", "seconds or steps"
    if fault.times is not None and not fault.recurs:
        yield "it comes once", "every=..., for times to mean something"
    if fault.at_phase is not None and not (fault.facts.has_moments and fault.victim == "worker"):
        yield "it has no at_phase", "a kind that hits a worker at once"
    if fault.where == "collective" and fault.at_phase not in (None, *_COLLECTIVES):
        yield f"there is no collective in {fault.at_phase}", f"at_phase={' or '.join(_COLLECTIVES)}"


def _number_problems(fault: Fault) -> Iterator[Problem]:
    for key in ("replica", "rank", "host", "peer", "at_step", "after_steps"):
        value = getattr(fault, key)
        if isinstance(value, int) and value < 0:
            yield f"{key} is {value}", "it must be at least 0"
    for key in ("every_steps", "times"):
        if (value := getattr(fault, key)) is not None and value < 1:
            yield f"{key.partition('_')[0]} is {value}", "it must be at least 1"
    for key in ("after_s", "every_s", "for_s"):
        value, at_once = getattr(fault, key), key == "after_s"
        if value is not None and not (0 < value < math.inf or (at_once and value == 0)):
            needed = "it must be at least 0" if at_once else "it must be above 0"
            yield f"{key.partition('_')[0]} is {value}", f"{needed}, and finite"
    if (amount := fault.amount) is not None and fault.facts.unit is not None:
        least, most = _AMOUNTS[fault.facts.unit]
        if not least < amount <= most or amount == 0 or math.isinf(amount):
            yield f"amount is {amount:g}", _AMOUNT_WORDS[fault.facts.unit]
        if fault.where == "monotonic" and amount < 0:
            yield f"a steady clock cannot jump by {amount:g} s", "a jump forward, or where=day"


_COLLECTIVES = ("reduce", "vote")
_AMOUNTS = {"x": (1.0, 1000.0), "%": (0.0, 100.0), "s": (0.0, 3600.0), "-s": (-1e10, 1e10)}
_AMOUNT_WORDS = {
    "x": "above 1x and at most 1000x",
    "%": "above 0% and at most 100%",
    "s": "above 0 s and at most an hour",
    "-s": "a number of seconds other than 0",
}
