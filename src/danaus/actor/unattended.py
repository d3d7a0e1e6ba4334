"""A detached host agent and its controllers, one after the other (P-4, A-12).

Owns ``nobody_works`` and ``Attendance``: whom an agent obeys, and that a host whose controller is
gone goes on until every worker there has ended or has said that it is done, or until another
controller has taken over.

Invariants:
    A-12: of the controllers of a run only the newest that was ever heard of is obeyed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol

from danaus.actor.agent_messages import FromAgent, OwnerReplaced
from danaus.wire.owned_tasks import OwnedTasks
from danaus.wire.position import Phase, PositionBlock

_LOOK_S = 1.0
_LOOKS = 5  # in a row; one that is done still writes down what it came to


class Workplace(Protocol):
    """A worker, as it is looked at from here."""

    @property
    def block(self) -> PositionBlock:
        """Where it says how far it is."""
        ...


async def nobody_works(workers: Iterable[Workplace]) -> None:
    """Return once no worker has had anything left to do for some time.

    Args:
        workers: Those of the host, looked at anew each time.
    """
    idle = 0
    while idle < _LOOKS:
        await asyncio.sleep(_LOOK_S)
        done = all(worker.block.read().phase is Phase.DONE for worker in workers)
        idle = idle + 1 if done else 0


class Attendant(Protocol):
    """A session with the agent; ``generation`` is that of the controller that opened it, else 0."""

    generation: int

    def tell(self, message: FromAgent) -> None:
        """Send; a session that is gone swallows it."""


class Attendance:
    """Who the agent's controller is, and whether there is one.

    Args:
        workers: Of the host.
        tasks: Owner of the waiting.
        end: Ends the agent.
        note: Writes a line to the agent's log.
    """

    def __init__(
        self,
        workers: Iterable[Workplace],
        tasks: OwnedTasks,
        *,
        end: Callable[[], None],
        note: Callable[[str], None],
    ) -> None:
        self._workers, self._tasks = workers, tasks
        self._end, self._note = end, note
        self._generation = 0
        self._present: set[Attendant] = set()
        self._alone: asyncio.Task[None] | None = None

    def greeted(self, session: Attendant, generation: int) -> None:
        """A session says whose it is."""
        if not generation:
            return
        session.generation = generation
        self._present.add(session)
        if generation > self._generation:
            if self._generation:
                self._note(f"controller {generation} of the run has taken over")
            self._generation = generation
            for each in self._present:
                self._tell_if_replaced(each)
        elif not self.obeys(session):
            self._tell_if_replaced(session)
        if generation == self._generation and self._alone is not None:
            self._alone.cancel()
            self._alone = None

    def obeys(self, session: Attendant) -> bool:
        """Tell whether what a session orders is done."""
        return session.generation in (0, self._generation)

    def refuse(self, session: Attendant) -> None:
        """Tell a session that is not obeyed why."""
        self._tell_if_replaced(session)

    def left(self, session: Attendant) -> None:
        """A session is over."""
        if session not in self._present:
            return
        self._present.discard(session)
        if session.generation == self._generation and not any(map(self.obeys, self._present)):
            self.nobody_there()

    def nobody_there(self) -> None:
        """The controller is gone: end the agent once nobody works here, or another comes."""
        if self._alone is None:
            self._note("the controller is gone; going on for as long as somebody works here")
            self._alone = self._tasks.start(self._wait(), "going on without a controller")

    async def _wait(self) -> None:
        await nobody_works(self._workers)
        self._end()

    def _tell_if_replaced(self, session: Attendant) -> None:
        if not self.obeys(session):
            session.tell(OwnerReplaced(self._generation))
