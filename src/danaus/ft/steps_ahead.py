"""How a learner gets the gradients of the members' steps: when it wants them, or ahead of that.

Owns ``fetch_steps`` and ``StepsAhead``, a thread that fetches the next steps one by one as donors
come to keep them, while the learner's ask is on its way: so that little is left to fetch once the
members stand still for it.  What is done with a step is ``ft.lesson``'s.

Invariants:
    A step is handed out only with the digest that was voted on.
    Nothing outlives ``end``: no thread, no connection.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import Tensor

from danaus.core.clock import Deadline
from danaus.core.errors import DeadlinePassed, ExchangeAborted, StaleQuorum, TransferFailed
from danaus.ft.manifest import Wanted
from danaus.ft.step_log import LoggedStep, places_for, step_in
from danaus.ft.transfer import Fetch, FetchReport

MOST_AHEAD = 8
"""Steps that are kept until they are wanted."""
LIMIT_S = 600.0
_PAUSE_S = 0.1
_LOOK_S = 1.0
_END_LIMIT_S = 5.0

GetSteps = Callable[[Wanted, Mapping[str, Tensor]], FetchReport]


@dataclass(frozen=True, slots=True)
class StepShape:
    """What a step of a run is as a transfer carries it.

    Args:
        lineage_term: Of the run.
        num_elements: Of a gradient.
        num_ranks: Of a replica.
        num_numbers: That a ``Tuned`` work goes by.
    """

    lineage_term: int
    num_elements: int
    num_ranks: int
    num_numbers: int = 0

    def places_for(self, step: int) -> dict[str, Tensor]:
        """Return where the parts of a step go."""
        return places_for(
            step,
            num_elements=self.num_elements,
            num_measures=self.num_ranks,
            num_numbers=self.num_numbers,
        )


@dataclass(frozen=True, slots=True)
class Fetched:
    """Steps as they came, and who gave how many bytes of them."""

    steps: tuple[LoggedStep, ...]
    bytes_by_donor: Mapping[str, int]


def fetch_steps(get: GetSteps, shape: StepShape, *, first: int, last: int) -> Fetched:
    """Fetch the steps from ``first`` to ``last``.

    Raises:
        TransferFailed: What came is not what was voted on; or whatever ``get`` raises.
    """
    into: dict[str, Tensor] = {}
    for step in range(first, last + 1):
        into |= shape.places_for(step)
    report = get(Wanted(first, "steps", shape.lineage_term, last), into)
    steps = tuple(step_in(step, into) for step in range(first, last + 1))
    if report.fingerprint != ",".join(each.digest for each in steps):
        why = "its gradients are not those that were voted on"
        raise TransferFailed(first, dict.fromkeys(report.bytes_by_donor, why))
    return Fetched(steps, report.bytes_by_donor)


class StepsAhead:
    """Fetch the steps after one, until ``end``.

    Args:
        after: The step whose state is held.
        shape: What a step is.
        make: Makes the transfer of what is wanted; called with where it goes, and with what is to
            be told how many bytes have come.
    """

    def __init__(
        self,
        after: int,
        shape: StepShape,
        make: Callable[[Wanted, Mapping[str, Tensor], Callable[[int], None]], Fetch],
    ) -> None:
        self.after, self._shape, self._make = after, shape, make
        self._changed = threading.Condition()  # guards what follows
        self._kept: dict[int, Fetched] = {}
        self._next: int | None = after + 1
        self._last: int | None = None
        self._num_bytes = 0
        self._fetch: Fetch | None = None
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="danaus ahead", daemon=True)
        self._thread.start()

    def leads_from(self, step: int, lineage_term: int) -> bool:
        """Tell whether its steps lead on from a state."""
        return (self.after, self._shape.lineage_term) == (step, lineage_term)

    def take(self, step: int, last: int, arrived: Callable[[int], None]) -> Fetched | None:
        """Return a step that was fetched, or is on its way; None: it does not come from here.

        Args:
            step: The step.
            last: None after this one is fetched any more.
            arrived: Called with the number of bytes that have come since it was called last, on
                this thread; may raise to end the waiting.
        """
        seen = 0
        with self._changed:
            self._last = last
            while step not in self._kept and self._next == step and not self._ended:
                if not self._changed.wait(_LOOK_S):
                    continue
                num_bytes, seen = self._num_bytes - seen, self._num_bytes
                arrived(num_bytes)
            return self._kept.pop(step, None)

    def wake(self) -> None:
        """Have ``take`` call ``arrived`` at once; from any thread."""
        with self._changed:
            self._changed.notify_all()

    def end(self) -> None:
        """Stop; what is on its way is dropped."""
        with self._changed:
            self._ended = True
            if self._fetch is not None:
                self._fetch.cancel("nobody waits for it any more")
            self._changed.notify_all()
        self._thread.join(_END_LIMIT_S)

    # -- on the thread ------------------------------------------------------------------------

    def _run(self) -> None:
        deadline = Deadline.after(LIMIT_S)
        while (step := self._due()) is not None and not deadline.passed:
            try:
                fetched = fetch_steps(self._get, self._shape, first=step, last=step)
            except StaleQuorum:
                self._try_again(step)
            except (TransferFailed, ExchangeAborted, DeadlinePassed):
                break
            else:
                with self._changed:
                    self._kept[step] = fetched
                    self._next = step + 1
                    self._changed.notify_all()
        with self._changed:
            self._next = None
            self._changed.notify_all()

    def _due(self) -> int | None:
        """Return the next step to fetch once there is room for it; None: there is none."""
        with self._changed:
            while len(self._kept) >= MOST_AHEAD and not self._ended:
                self._changed.wait(_LOOK_S)
            beyond = self._last is not None and self._next is not None and self._next > self._last
            return None if self._ended or beyond else self._next

    def _try_again(self, step: int) -> None:
        """Let donors that have not come to a step yet, or keep none, have some time."""
        with self._changed:
            if self._last is not None:
                self._ended = True  # they stand at that step by now: they do not keep it
            self._changed.wait(_PAUSE_S)

    def _get(self, wanted: Wanted, into: Mapping[str, Tensor]) -> FetchReport:
        fetch = self._make(wanted, into, self._arrived)
        with self._changed:
            self._fetch = fetch
            if self._ended:
                fetch.cancel("nobody waits for it any more")
        try:
            return fetch.run(Deadline.after(LIMIT_S))
        finally:
            with self._changed:
                self._fetch = None

    def _arrived(self, num_bytes: int) -> None:
        with self._changed:
            self._num_bytes += num_bytes
            self._changed.notify_all()
