"""Which controllers this process listens to: of the controllers of a job, only the newest (A-12).

Owns ``Generations``.  On the connections' loop.
"""

from __future__ import annotations

from danaus.wire.session import Session

REPLACED = "a later controller has taken its place"


class Generations:
    """The sessions that controllers have opened with this process, by job."""

    def __init__(self) -> None:
        self._newest: dict[str, int] = {}
        self._sessions: dict[str, set[Session]] = {}

    def admit(self, job: str, generation: int, session: Session) -> bool:
        """Take in a session, ending those of earlier controllers; false: it is one of these.

        Args:
            job: Whose secret it has proven to hold.
            generation: Of the controller that opened it; 0: it is none that can be replaced.
            session: The session.
        """
        if not generation:
            return True
        newest = self._newest.get(job, 0)
        if generation < newest:
            session.end(REPLACED)
            return False
        known = self._sessions.setdefault(job, set())
        if generation > newest:
            self._newest[job] = generation
            for each in list(known):
                each.end(REPLACED)
        known.add(session)
        session.closed.add_done_callback(lambda _: known.discard(session))
        return True
