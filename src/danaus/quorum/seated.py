"""Which members sit in which process, as its host agent names it.

Owns ``Seated``.  A process that outlives a sibling has one name after the other (H-3): where it
stands concerns the newest, its end all of them.
"""

from __future__ import annotations

from danaus.quorum.messages import MemberId, Seat


class Seated:
    """The members of every process that a host agent watches."""

    def __init__(self) -> None:
        self._names: dict[tuple[str, str], set[MemberId]] = {}
        self._seats: dict[MemberId, Seat] = {}

    def add(self, seat: Seat) -> None:
        """Note that a member sits where its seat says; those before it in that process stay."""
        self._names.setdefault((seat.agent_address, seat.process_id), set()).add(seat.member)
        self._seats[seat.member] = seat

    def newest(self, address: str, process_id: str) -> MemberId | None:
        """Return under which name a process goes now; None: it is not known."""
        names = self._names.get((address, process_id), set())
        return max(names, key=lambda member: member.incarnation, default=None)

    def take(self, address: str, process_id: str) -> list[MemberId]:
        """Forget a process that has ended; return all names that it had, the oldest first."""
        names = self._names.pop((address, process_id), set())
        for member in names:
            del self._seats[member]
        return sorted(names, key=lambda member: member.incarnation)

    def everyone(self) -> list[MemberId]:
        """Return every name of every process."""
        return [member for names in self._names.values() for member in names]

    def on(self, address: str) -> list[Seat]:
        """Return the seats of every process of one host agent, under every name that it had."""
        processes = [names for (where, _), names in self._names.items() if where == address]
        return [self._seats[member] for names in processes for member in names]

    def process_of(self, member: MemberId) -> str:
        """Return how the host agent calls a member's process; empty: it is not known."""
        found = (process for (_, process), names in self._names.items() if member in names)
        return next(found, "")
