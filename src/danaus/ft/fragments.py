"""When a fragment of a model is prepared, reduced, voted on and mixed: a pure machine.

Owns the schedule of semi-synchronous training.  Replicas train apart (inner steps) and meet once a
period (an outer step); each period brings another fragment of the model together, in turn.  A
period's fragment is *prepared* ``delay`` inner steps before its end: what this replica adds to the
mean is taken down and its reduction begins.  At the end the replicas vote.  What is taken down,
reduced and applied is the shell's (``ft.outer_steps``).

Invariants:
    T-1: a fragment is applied where the vote on it said so, and nowhere else.
    T-2: after a vote that said no, all stands as it stood before it: the same fragment is due, and
    what was prepared is reduced again at once, so that no inner step is lost or repeated.
    T-6: whoever learned its state in the middle of a period has no work of its own in it; it brings
    nothing, and is not divided by.  Only where nobody has any is what was learned brought.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from danaus.core.errors import ConfigError

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 1.0


@dataclass(frozen=True, slots=True)
class Schedule:
    """Which fragment meets when.

    Args:
        sync_every: Inner steps in which every fragment is synced once, at least one for each.
        num_fragments: Where it does not divide ``sync_every``, periods differ by one step.
        delay: Inner steps between preparing a fragment and its vote; fewer than a period has.

    Raises:
        ConfigError: They do not fit together.
    """

    sync_every: int
    num_fragments: int = 1
    delay: int = 0

    def __post_init__(self) -> None:
        if self.num_fragments < 1:
            raise ConfigError("no fragment of a model to sync", "at least one")
        if self.sync_every < self.num_fragments:
            raise ConfigError(
                f"sync_every is {self.sync_every} with {self.num_fragments} fragments",
                "an inner step for each fragment at least, since one is synced at a time",
            )
        shortest = self.sync_every // self.num_fragments
        if not 0 <= self.delay < shortest:
            raise ConfigError(
                f"fragment_sync_delay is {self.delay}",
                f"0 to {shortest - 1}: a fragment is prepared in the period that ends with its "
                "vote",
            )

    def fragment(self, num_outer: int) -> int:
        """Return the fragment that meets after so many outer steps."""
        return num_outer % self.num_fragments

    def length(self, num_outer: int) -> int:
        """Return the inner steps of the period that comes after so many outer steps."""
        at = self.fragment(num_outer)
        ends = [self.sync_every * n // self.num_fragments for n in (at, at + 1)]
        return ends[1] - ends[0]


# -- events ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Entered:
    """Training is about to begin."""


@dataclass(frozen=True, slots=True)
class Learned:
    """The state of another replica took the place of this one's."""

    num_outer: int
    num_inner: int


@dataclass(frozen=True, slots=True)
class Begun:
    """The outer step's quorum is there."""


@dataclass(frozen=True, slots=True)
class Stepped:
    """An inner step was taken."""


@dataclass(frozen=True, slots=True)
class NobodyBrought:
    """The reduction is done, and no replica had anything to bring."""


@dataclass(frozen=True, slots=True)
class Voted:
    """The vote on the fragment that is due is out."""

    committed: bool


Event = Entered | Learned | Begun | Stepped | NobodyBrought | Voted


# -- instructions ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Begin:
    """Ask for the quorum of the outer step, after a pause; answer with ``Begun``."""

    pause_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Prepare:
    """Take down what this replica brings."""

    fragment: int


@dataclass(frozen=True, slots=True)
class Reduce:
    """Begin to reduce what was prepared; with nothing, if ``has_own`` is not set."""

    fragment: int
    has_own: bool


@dataclass(frozen=True, slots=True)
class Vote:
    """Wait for the reduction and vote; answer with ``Voted`` or ``NobodyBrought``."""

    fragment: int


@dataclass(frozen=True, slots=True)
class Apply:
    """Take the outer step with the mean, and mix."""

    fragment: int


Instruction = Begin | Prepare | Reduce | Vote | Apply
Instructions = tuple[Instruction, ...]


class FragmentMachine:
    """Decide what comes after each inner step.

    Args:
        schedule: Which fragment meets when.
    """

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.num_outer = 0
        """Outer steps taken."""
        self.num_inner = 0
        """Inner steps taken in this period."""
        self._has_own = False  # whether what is prepared is this replica's own work
        self._num_refused = 0  # votes in a row

    def handle(self, event: Event) -> Instructions:
        """Return what to do now that ``event`` has happened, in order."""
        return _HANDLERS[type(event)](self, event)

    def _entered(self, _event: Entered) -> Instructions:
        return (Begin(),)

    def _learned(self, event: Learned) -> Instructions:
        self.num_outer, self.num_inner, self._has_own = event.num_outer, event.num_inner, False
        return ()

    def _begun(self, _event: Begun) -> Instructions:
        if self.num_inner < self._length:
            return ()
        return (Reduce(self._fragment, self._has_own), Vote(self._fragment))

    def _stepped(self, _event: Stepped) -> Instructions:
        self.num_inner += 1
        orders: Instructions = ()
        if self.num_inner == self._length - self.schedule.delay:
            orders = self._prepare()
        if self.num_inner == self._length:
            orders += (Vote(self._fragment),)
        return orders

    def _nobody_brought(self, _event: NobodyBrought) -> Instructions:
        # All replicas see the same sum of weights, and come here together.
        return (*self._prepare(), Vote(self._fragment))

    def _voted(self, event: Voted) -> Instructions:
        if not event.committed:
            # A state that was learned while the votes were out does not put the vote off.
            self.num_inner = self._length
            self._num_refused += 1
            return (Begin(self._pause_s()),)
        self._num_refused = 0
        applied = Apply(self._fragment)
        self.num_outer, self.num_inner, self._has_own = self.num_outer + 1, 0, False
        return (applied, Begin())

    def _pause_s(self) -> float:
        """Return how long to wait before the next try: after one death, not at all.

        Where the replicas are too few, every try is in vain until another comes.
        """
        if self._num_refused < 2:
            return 0.0
        return min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2.0 ** (min(self._num_refused, 9) - 2))

    def _prepare(self) -> Instructions:
        self._has_own = True
        return (Prepare(self._fragment), Reduce(self._fragment, True))

    @property
    def _fragment(self) -> int:
        return self.schedule.fragment(self.num_outer)

    @property
    def _length(self) -> int:
        return self.schedule.length(self.num_outer)


_HANDLERS: dict[type, Callable[[FragmentMachine, Any], Instructions]] = {
    Entered: FragmentMachine._entered,
    Learned: FragmentMachine._learned,
    Begun: FragmentMachine._begun,
    Stepped: FragmentMachine._stepped,
    NobodyBrought: FragmentMachine._nobody_brought,
    Voted: FragmentMachine._voted,
}
