"""Links for references that stay good when a process is started again (A-9).

Owns ``Followers``.  A process that takes the place of another bears the next incarnation in its
name and lives on the same host: whoever learns that one has ended looks there for its heir.  On
the connections' loop.

Invariants:
    A-1: each link but the first numbers anew, under another sender's name: an heir has seen
        nothing.
    A-4: what was sent to a process that ended is lost with it and its sender told; what was not
        sent yet goes to the heir, and if none comes within a second its sender is told.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Protocol

from danaus.actor.failure import Fault
from danaus.actor.identity import ProcessRef
from danaus.actor.process_link import ProcessLink, Unsent
from danaus.actor.process_messages import Deliver
from danaus.actor.supervision_messages import ProcessName


class FollowedConnections(Protocol):
    """The connections, as they are seen from here."""

    def new_link(self, ref: ProcessRef, life: int) -> ProcessLink:
        """Return a new link to exactly this process."""

    def find(self, link: ProcessLink, name: ProcessName) -> None:
        """Have the process of a link located, or the link ended if it is known to be gone."""


class Followers:
    """The links of all references that follow.

    Args:
        connections: Of this process.
        fault_of: Returns what ended a process, None if it is not known to have ended.
    """

    def __init__(
        self, connections: FollowedConnections, fault_of: Callable[[ProcessName], Fault | None]
    ) -> None:
        self._connections = connections
        self._fault_of = fault_of
        self._links: dict[ProcessName, ProcessLink] = {}  # by the process first referred to

    def link(self, ref: ProcessRef) -> ProcessLink:
        """Return the link to whoever has the place of a process now."""
        name = ProcessName(ref.job, ref.process_id)
        link = self._links.get(name)
        if link is None:
            return self._renew(name, ref, 0)
        if link.fault is not None:
            return self._renew(name, self._heir(link.ref), link.life + 1)
        if link.may_come_up_again:
            return self._renew(name, link.ref, link.life + 1)
        return link

    def located(self, process: ProcessName, address: str) -> None:
        """Learn where a process listens."""
        for link in self._to(process):
            link.located(address)

    def lose(self, process: ProcessName, why: str) -> None:
        """A process is out of reach."""
        for link in self._to(process):
            link.fail(why, None)

    def gone(self, process: ProcessName, fault: Fault) -> None:
        """A process has ended: what was not sent to it yet goes to its heir."""
        for name, link in list(self._links.items()):
            if link.ref.process_id == process.process_id and link.ref.job == process.job:
                unsent = [each for each in link.take_unsent() if _is_for_an_heir(each, fault)]
                link.fail(fault.reason, fault)
                if unsent:
                    self._renew(name, self._heir(link.ref), link.life + 1).send_again(unsent)

    def leave(self, job: str) -> None:
        """Forget a job."""
        for name, link in list(self._links.items()):
            if name.job == job:
                del self._links[name]
                link.fail("this process left the job", None)

    def never_came(self, process: ProcessName) -> bool:
        """An agent knows nothing of a process; tell whether it was an heir that was looked for."""
        waiting = [link for link in self._to(process) if self._is_heir(link)]
        for link in waiting:
            link.fail("it has ended, and was not started again so far", None)
        return bool(waiting)

    def known_on(self, agent_address: str) -> set[ProcessName]:
        """Return the processes of a host that there are links to."""
        return {
            ProcessName(link.ref.job, link.ref.process_id)
            for link in self._links.values()
            if link.ref.agent_address == agent_address
        }

    def _is_heir(self, link: ProcessLink) -> bool:
        return any(
            each is link and name.process_id != link.ref.process_id
            for name, each in self._links.items()
        )

    def _renew(self, name: ProcessName, ref: ProcessRef, life: int) -> ProcessLink:
        while self._fault_of(ProcessName(ref.job, ref.process_id)) is not None:
            ref, life = self._heir(ref), max(life, 1)
        link = self._links[name] = self._connections.new_link(ref, life)
        self._connections.find(link, ProcessName(ref.job, ref.process_id))
        return link

    def _heir(self, ref: ProcessRef) -> ProcessRef:
        heir = ProcessName(ref.job, ref.process_id).heir
        return dataclasses.replace(ref, process_id=heir.process_id)

    def _to(self, process: ProcessName) -> list[ProcessLink]:
        return [
            link
            for link in self._links.values()
            if (link.ref.job, link.ref.process_id) == (process.job, process.process_id)
        ]


def _is_for_an_heir(unsent: Unsent, fault: Fault) -> bool:
    """Tell whether it goes to whoever takes the place; what does not has ended, and is told so.

    To make an actor, or to end it, was meant for the process that has ended.
    """
    message, _, pending = unsent
    if isinstance(message, Deliver):
        return True
    if pending is not None:
        pending.gone(fault.reason, fault)
    return False
