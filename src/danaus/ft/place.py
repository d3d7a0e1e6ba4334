"""Where one member process stands in the job, and what it needs to reach the others.

A ``Place`` is made by whoever starts the process (the run's controller, or a user's own
program) and is handed to ``Participant``.  It holds addresses and names, no secret: the secret
stays in its 0600 file (W-2).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Self

from danaus.quorum.folder import RunFiles
from danaus.quorum.messages import MemberId, Seat


@dataclass(frozen=True, slots=True)
class Place:
    """One process of one replica.

    Args:
        replica_id: Stable name of the replica.
        rank: Place inside the replica, ``0 .. num_ranks - 1``.
        num_ranks: Processes per replica (the degree of sharding).
        incarnation: Grows with each start of this replica.
        quorum_address: Where the quorum service listens; of several candidates all, with commas
            between them.
        secret_path: The job's secret, a 0600 file.
        data_address: Where this process listens for its peers (``unix:…`` or ``tcp:host:0``).
        agent_address: Its host agent, as the quorum service dials it ("" without one).
        process_id: Its name at that agent ("" without one).
        rejoins: Whether it can outlive a sibling, under the replica's next incarnation (H-3).
        formerly: Names that this process has given up.
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
    rejoins: bool = False
    formerly: tuple[MemberId, ...] = ()

    @classmethod
    def in_folder(
        cls,
        folder: str | os.PathLike[str],
        replica_id: str,
        incarnation: int = 0,
        *,
        quorum_address: str = "",
    ) -> Self:
        """Return the place of a replica of one process that meets the others in a folder.

        All are on one machine.  They may be started in any order, and so may the quorum service:
        ``danaus lighthouse --run FOLDER --expected-replicas N``.

        No host agent watches such a process.  It counts as gone once its connection to the service
        has closed and nobody listens where it took its peers, a second later at most, and after
        the heartbeat limit if it hangs; nobody kills it then, and what it sends later is refused.

        Args:
            folder: Of the run; made (0700) if it is not there, and the job's secret in it.
            replica_id: Stable name of the replica.
            incarnation: Must grow with each start of this replica.
            quorum_address: Where the service listens, if not in the folder, or may listen.
        """
        files = RunFiles.prepare(folder)
        return cls(
            replica_id=replica_id,
            rank=0,
            num_ranks=1,
            incarnation=incarnation,
            quorum_address=quorum_address or files.service_address,
            secret_path=str(files.secret),
            data_address=files.data_address(replica_id, incarnation),
        )

    @property
    def member(self) -> MemberId:
        """The name that votes, state and healing carry."""
        return MemberId(self.replica_id, self.rank, self.incarnation)

    def seat(self, data_address: str) -> Seat:
        """Return what the quorum service is told: ``data_address`` is where peers dial."""
        return Seat(
            member=self.member,
            num_ranks=self.num_ranks,
            data_address=data_address,
            agent_address=self.agent_address,
            process_id=self.process_id,
            rejoins=self.rejoins,
            formerly=self.formerly,
        )
