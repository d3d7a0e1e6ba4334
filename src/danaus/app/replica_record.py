"""What is written down of the processes of one replica: starts, ends, repairs.

Owns ``ReplicaRecord``: lines of the journal, and the names under which processes are found that
have become something else than they were started as.
"""

from __future__ import annotations

from danaus.actor.failure import MeshFailure
from danaus.actor.identity import host_name
from danaus.actor.procfs import read_stat
from danaus.app.events import Event
from danaus.app.inheritance import note_name
from danaus.app.replica_ranks import RankProcess, ReplicaRanks
from danaus.app.run_folder import RunFolder
from danaus.core.journal import Journal

_ADOPTED = 100


class ReplicaRecord:
    """Write down what becomes of one replica.

    Args:
        replica_id: Which.
        folder: The run's, held by this process.
        journal: Where lines are written.
    """

    def __init__(self, replica_id: str, folder: RunFolder, journal: Journal) -> None:
        self._replica_id, self._folder, self._journal = replica_id, folder, journal

    def adopted(self, ranks: ReplicaRanks) -> None:
        """Write down who processes are by now, for those who look for a replica's.

        A later controller goes on with them, those too that were started one by one (A-12).
        """
        everyone = list(ranks)
        for each in {n.procs.mesh_id: n for n in everyone}.values():
            own = {n.process_id: n.rank for n in everyone if n.procs is each.procs}
            note_name(each.procs, self._replica_id, incarnation=each.incarnation, ranks=own)
        known = dict(list(self._folder.addresses().get("adopted", {}).items())[-_ADOPTED:])
        for each in everyone:
            host = host_name(each.process_id)
            known[each.process_id] = f"{host}/{self._replica_id}/{each.rank}#{each.incarnation}"
        self._folder.save_addresses(adopted=known)

    def started(self, process: RankProcess) -> None:
        """A process was started."""
        self._journal.record(Event.PROCESS_STARTED, **self._facts(process))

    def exited(self, process: RankProcess, failure: MeshFailure) -> None:
        """A process has ended."""
        self._journal.record(
            Event.PROCESS_EXITED,
            **self._facts(process),
            exit_code=failure.exit_code,
            signal=failure.signal,
            kind=failure.kind,
            reason=failure.reason,
            expected=failure.exit_code == 0,
        )

    def failed(self, why: str) -> None:
        """It failed by an error of its own."""
        self._journal.record(Event.REPLICA_FAILED, replica=self._replica_id, reason=why)

    def quarantined(self, why: str) -> None:
        """It is not started again."""
        self._journal.record(Event.REPLICA_QUARANTINED, replica=self._replica_id, reason=why)

    def repaired(self, new: RankProcess, ranks: ReplicaRanks, duration_s: float) -> None:
        """One rank was started anew, and the others have met it."""
        self._journal.record(
            Event.RANK_REPAIRED,
            replica=self._replica_id,
            rank=new.rank,
            incarnation=new.incarnation,
            pid=new.pid,
            kept=[each.pid for each in ranks if each is not new],
            duration_s=round(duration_s, 6),
        )

    def not_repaired(self, rank: int, why: str) -> None:
        """The replica is started whole though one rank alone was lost."""
        self._journal.record(
            Event.RANK_NOT_REPAIRED, replica=self._replica_id, rank=rank, reason=why
        )

    def stuck(self, pids: list[int], limit_s: float) -> None:
        """It was killed and does not end."""
        self._journal.record(
            Event.PROCESS_STUCK,
            replica=self._replica_id,
            pids=[pid for pid in pids if read_stat(pid) is not None],
            reason=f"killed {limit_s:g} s ago and still there: it waits inside the kernel, "
            "for a device or a file system",
        )

    def _facts(self, process: RankProcess) -> dict[str, object]:
        return {
            "replica": self._replica_id,
            "rank": process.rank,
            "incarnation": process.incarnation,
            "process_id": process.process_id,
            "pid": process.pid,
        }
