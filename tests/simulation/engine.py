"""Simulated time, processes and connections.  No thread, no sleep: one heap of things to come."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from typing import Any

SLOW_END_S = 20.0
"""The network is at peace later, so that every run can reach its end."""


class Violation(AssertionError):
    """A promise is broken; ``label`` names it."""

    def __init__(self, label: str, what: str) -> None:
        super().__init__(f"{label}: {what}")
        self.label = label


class Engine:
    """The heap, the chance, the trace, and who cannot hear whom."""

    def __init__(self, seed: int, slow: int, drift: int = 0) -> None:
        self.now = 0.0
        self.random = random.Random(seed)
        self.slow = slow / 100
        self._drift = drift / 100
        self._rates = random.Random(f"clocks {seed}")
        self.trace: list[tuple[float, str, Any]] = []
        self.moments: dict[str, int] = {}
        self.on_moment: Callable[[str, int, Any], None] = lambda *_: None
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._number = 0
        self._walls: list[tuple[float, frozenset[str], frozenset[str]]] = []  # one way each
        self._harms: list[tuple[float, str, float, float]] = []

    def after(self, delay: float, act: Callable[..., None], *args: Any) -> None:
        self.at(self.now + delay, act, *args)

    def at(self, moment: float, act: Callable[..., None], *args: Any) -> None:
        self._number += 1
        heapq.heappush(self._heap, (moment, self._number, act, args))

    def run(self, until: Callable[[], float]) -> None:
        """Run until nothing is left or ``until()`` has come."""
        while self._heap and self._heap[0][0] <= until():
            self.now, _, act, args = heapq.heappop(self._heap)
            act(*args)

    def note(self, who: str, what: Any) -> None:
        self.trace.append((self.now, who, what))

    def moment(self, name: str, who: Any) -> None:
        """Say that ``name`` comes to pass at ``who``; faults strike here, synchronously."""
        count = self.moments[name] = self.moments.get(name, 0) + 1
        self.on_moment(name, count, who)

    def delay(self, *hosts: str) -> float:
        """A message's time on the way between ``hosts``, in seconds."""
        chance = self.random
        if chance.random() < self.slow and self.now < SLOW_END_S:
            time = chance.uniform(0.1, 3.0)
        else:
            time = chance.uniform(0.001, 0.02)
        for ends, host, loss, longer in self._harms:
            if ends > self.now and host in hosts:
                time += longer
                while chance.random() < loss:  # it is sent again, later each time
                    time += chance.uniform(0.2, 1.0)
        return time

    def rate(self) -> float:
        """Return how fast the clock of one more process runs."""
        return 1.0 + self._rates.uniform(-self._drift, self._drift)

    def harm(self, host: str, span: float, *, loss: float = 0.0, longer: float = 0.0) -> None:
        """Lose a share of a host's packets, or let them take longer, for a while."""
        self._harms = [each for each in self._harms if each[0] > self.now]
        self._harms.append((self.now + span, host, loss, longer))

    def wall(
        self, here: frozenset[str], there: frozenset[str], span: float, *, one_way: bool = False
    ) -> None:
        """Hold back for a while what two sets of hosts send each other, or ``here`` to ``there``.

        Nothing is lost: the sender's kernel sends it again until it is through.
        """
        ends = self.now + span
        self._walls = [each for each in self._walls if each[0] > self.now]
        self._walls.append((ends, here, there))
        if not one_way:
            self._walls.append((ends, there, here))

    def held_until(self, source: str, target: str) -> float:
        """When the last wall on the way from one host to another falls (0: none stands)."""
        return max(
            (
                falls
                for falls, here, there in self._walls
                if falls > self.now and source in here and target in there
            ),
            default=0.0,
        )

    def apart_until(self, one: str, other: str) -> float:
        """When two hosts can dial, or ask and answer, again (0: they can)."""
        return max(self.held_until(one, other), self.held_until(other, one))

    @property
    def is_calm(self) -> bool:
        """Whether no wall stands and no link is harmed."""
        return all(each[0] <= self.now for each in (*self._walls, *self._harms))


class Link:
    """One direction of a connection: in order, late perhaps, until it is cut."""

    __slots__ = ("_engine", "_from", "_last", "_to", "cut")

    def __init__(self, engine: Engine, source: str, target: str) -> None:
        self._engine = engine
        self._from = source
        self._to = target
        self._last = 0.0
        self.cut = False

    def send(self, act: Callable[..., None], *args: Any) -> None:
        self._last = max(self._last, self._engine.now + self._engine.delay(self._from, self._to))
        self._engine.at(self._last, self._arrive, act, args)

    def _arrive(self, act: Callable[..., None], args: tuple[Any, ...]) -> None:
        if self.cut:
            return
        held = self._engine.held_until(self._from, self._to)
        if held:
            self._last = max(self._last, held)
            self._engine.at(held, self._arrive, act, args)
        else:
            act(*args)


class Process:
    """What can die, stop and go on, by a clock of its own."""

    def __init__(self, engine: Engine, name: str, host: str) -> None:
        self.engine = engine
        self.name = name
        self.host = host
        self.alive = True
        self.stopped = False
        self.rate = engine.rate()
        self.ahead = 0.0
        self._inbox: list[tuple[Callable[..., None], tuple[Any, ...]]] = []

    def run(self, act: Callable[..., None], *args: Any) -> None:
        """Do it, later if this process is stopped, never if it is dead."""
        if not self.alive:
            return
        if self.stopped:
            self._inbox.append((act, args))
        else:
            act(*args)

    def resume_with(self, act: Callable[..., None], *args: Any) -> None:
        """Go on with it before anything that has arrived while this process was stopped."""
        self._inbox.insert(0, (act, args))

    @property
    def clock(self) -> float:
        """The moment as this process has it: never falls, but runs at its own rate and leaps."""
        return self.engine.now * self.rate + self.ahead

    def leap(self, span: float) -> None:
        """Let this process's clock leap ahead; whoever has deadlines finds them passed."""
        self.engine.note(self.name, f"its clock leaps by {span:g} s")
        self.ahead += span

    def later(self, delay: float, act: Callable[..., None], *args: Any) -> None:
        """Do it after a time by this process's clock."""
        self.engine.after(delay / self.rate, self.run, act, *args)

    def stop(self) -> None:
        self.engine.note(self.name, "stopped")
        self.stopped = True

    def go_on(self) -> None:
        if not self.alive or not self.stopped:
            return
        self.engine.note(self.name, "goes on")
        self.stopped = False
        inbox, self._inbox = self._inbox, []
        for position, (act, args) in enumerate(inbox):
            if not self.alive:
                return
            if self.stopped:
                self._inbox += inbox[position:]  # behind what was left of the last act
                return
            act(*args)
