"""Where one member process stands in the job, and what it needs to reach the others.

A ``Place`` is made by whoever starts the process (the run's controller, or a user's own
program) and is handed to ``Participant``.  It holds addresses and names, no secret: the secret
stays in its 0600 file (W-2).
"""

from __future__ import annotations

from dataclasses import dataclass

from danaus.quorum.messages import MemberId


@dataclass(frozen=True, slots=True)
class Place:
    """One process of one replica.

    Args:
        replica_id: Stable name of the replica.
        rank: Place inside the replica, ``0 .. num_ranks - 1``.
        num_ranks: Processes per replica (the degree of sharding).
        incarnation: Grows with each start of this replica.
        quorum_address: Where the quorum service listens.
        secret_path: The job's secret, a 0600 file.
        data_address: Where this process listens for its peers (``unix:…`` or ``tcp:host:0``).
        agent_address: Its host agent, as the quorum service dials it ("" without one).
        process_id: Its name at that agent ("" without one).
    """

    replica_id: str
    rank: int
    num_ranks: int
    incarnation: int
    quorum_address: str
    secret_path: str
    data_address: str
    agent_address: str = ""
    process_id: str = ""

    @property
    def member(self) -> MemberId:
        """The name that votes, state and healing carry."""
        return MemberId(self.replica_id, self.rank, self.incarnation)
