"""What a worker writes down while it trains: position, metrics, journal, checkpoints.

Owns ``Recorder``, the observer that a worker gives its participant.  A full disk stops none of
it.  Positions go to memory shared with the host agent (P-3).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Self

from danaus.app.events import Event
from danaus.app.run_folder import RunFolder
from danaus.core.journal import Journal
from danaus.ft.ledger import Committed
from danaus.ft.observer import Moment, Observer
from danaus.ft.place import Place
from danaus.ft.work import StepResult
from danaus.platform.choice import Choice
from danaus.quorum.messages import Epoch
from danaus.train.checkpoint import Written
from danaus.train.metrics import Metrics
from danaus.train.replica import ReplicaWork
from danaus.wire.position import Phase, PositionBlock


class Recorder(Observer):
    """Write down what a participant does.

    Args:
        place: Who this process is.
        work: What is trained; writes the checkpoints.
        folder: The run's.
        position: Memory shared with the host agent.
        repaired: Whether one rank of the replica was started anew and the others live on (H-3):
            what each rank fetches is written down then.
        others: More observers, told of the same after this one.
    """

    def __init__(
        self,
        place: Place,
        work: ReplicaWork,
        folder: RunFolder,
        *,
        position: PositionBlock | None,
        repaired: bool = False,
        others: Sequence[Observer] = (),
    ) -> None:
        self._place, self._work, self._position = place, work, position
        self._repaired = repaired
        self._others = tuple(others)
        self._journal = Journal(folder.journal_path)
        self._is_voice = place.rank == 0
        self._metrics = Metrics(folder.metrics_path(place.replica_id)) if self._is_voice else None
        self._said_in_line = False
        work.on_checkpoint(self._checkpointed)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End what writes checkpoints; close the files."""
        self._work.close()
        if self._metrics is not None:
            self._metrics.close()
        self._journal.close()

    def started(self, choice: Choice, bits: tuple[str, str], *, room_bytes: int) -> None:
        """Write down what this process computes on and how it sums, and why, and what it may lend.

        Args:
            choice: What it computes on.
            bits: Whether sums have one order, and why.
            room_bytes: Memory that may be lent to learners.
        """
        state_bytes = sum(t.numel() * t.element_size() for t in self._work.state().values())
        self._record(
            Event.WORKER_READY,
            platform=choice.platform.kind,
            reason=choice.reason,
            bits=bits[0],
            bits_reason=bits[1],
            environment=choice.platform.environment(),
            state_bytes=state_bytes,
            snapshot_room_bytes=room_bytes,
            checkpoint_room_bytes=self._work.checkpoint_room_bytes,
        )

    def entered(self, step: int, phase: Phase, number: int) -> None:
        if self._position is not None:
            self._position.write(step, phase, number)
        for other in self._others:
            other.entered(step, phase, number)

    def moment(self, moment: Moment, step: int) -> None:
        for other in self._others:
            other.moment(moment, step)

    def committed(self, line: Committed, result: StepResult) -> None:
        replicas = sorted(line.leaves)
        applied = self._work.last_result
        if self._metrics is not None and applied is not None:
            self._metrics.record(applied, num_replicas=len(replicas), epoch=str(line.epoch))
        if replicas[0] == self._place.replica_id:
            self._write_checkpoint(line)
        for other in self._others:
            other.committed(line, result)

    def _write_checkpoint(self, line: Committed) -> None:
        step, work = line.step, self._work
        decision = work.checkpoint_decision(step)
        if decision == "skip":
            reason = "the one before is still being written"
            self._record(Event.CHECKPOINT_SKIPPED, step=step, reason=reason)
        if decision != "save":
            return
        # The others go on meanwhile: in a phase of its own a slow disk is no hang (P-3, H-5).
        self.entered(step, Phase.CHECKPOINT, 0)
        if step == work.last_step:  # nothing is left to go on with
            look = self._looks(step)
            work.checkpoint_last(step, line.epoch, line.fingerprint, on_wait=look)
            return
        beside = work.checkpoint(step, line.epoch, line.fingerprint)
        if not beside and not self._said_in_line:
            self._said_in_line = True
            reason = f"no room for a copy of its state in {work.checkpoint_room_bytes} bytes"
            self._record(Event.CHECKPOINT_IN_LINE, step=step, reason=reason)

    def _save(self, step: int, epoch: Epoch) -> bool:
        return self._checkpoint_now(step, epoch, self._work.fingerprint())

    def _checkpoint_now(self, step: int, epoch: Epoch, fingerprint: str) -> bool:
        """Write the state before going on; return whether this rank's part is on the disk."""
        look = self._looks(step)
        look()
        written = self._work.checkpoint_now(step, epoch, fingerprint, on_wait=look)
        self._checkpointed(written)
        return not written.reason

    def _looks(self, step: int) -> Callable[[], None]:
        """Return what tells, again and again, that a disk is waited for (P-3)."""
        looks = itertools.count(1)
        return lambda: self.entered(step, Phase.CHECKPOINT, next(looks))

    def _checkpointed(self, written: Written) -> None:
        """Write down what became of a checkpoint; on the thread that wrote it."""
        step, rank = written.step, self._place.rank
        if written.complete:  # by whichever rank wrote the last part
            self._journal.record(Event.CHECKPOINT_WRITTEN, **self._facts(), step=step)
        elif written.reason:
            facts = {**self._facts(), "rank": rank, "step": step, "reason": written.reason}
            self._journal.record(Event.CHECKPOINT_FAILED, **facts)

    def refused(self, step: int, reason: str) -> None:
        self._record(Event.STEP_REFUSED, step=step, reason=reason)
        for other in self._others:
            other.refused(step, reason)

    def discarded(self, step: int, epoch: Epoch, reason: str) -> None:
        self._record(Event.STEP_DISCARDED, step=step, epoch=str(epoch), reason=reason)
        for other in self._others:
            other.discarded(step, epoch, reason)

    def restored(self, step: int, epoch: Epoch, reason: str) -> None:
        self._record(Event.RUN_RESUMED, step=step, term=epoch.term, reason=reason)
        for other in self._others:
            other.restored(step, epoch, reason)

    def restore_failed(self, step: int, reason: str) -> None:
        self._journal.record(Event.CHECKPOINT_REFUSED, **self._facts(), step=step, reason=reason)
        for other in self._others:
            other.restore_failed(step, reason)

    def leave_asked(self, reason: str) -> None:
        """Write down that this process was asked to leave; from any thread."""
        self._record(Event.LEAVE_ASKED, reason=reason)

    def leaving(self, step: int, epoch: Epoch | None, reason: str, *, save: bool) -> None:
        # Without an epoch the state is as it was restored: it is on the disk already.
        saved = save and epoch is not None and self._save(step, epoch)
        self._record(Event.REPLICA_LEFT, step=step, reason=reason, saved=saved)
        for other in self._others:
            other.leaving(step, epoch, reason, save=save)

    def finished(self, step: int, epoch: Epoch | None, *, save: bool) -> None:
        # Only now is it known that all have the same state: nothing else is the run's.
        work = self._work
        mine = save and step == work.last_step
        if mine and epoch is not None and work.checkpoint_decision(step) == "save":
            self._save(step, epoch)
        for other in self._others:
            other.finished(step, epoch, save=save)

    def learning(self, step: int, donors: tuple[str, ...], *, trails: bool) -> None:
        self._record(Event.LEARNING_STARTED, step=step, donors=sorted(donors), trails=trails)
        for other in self._others:
            other.learning(step, donors, trails=trails)

    def donor_failed(self, step: int, donor: str, reason: str) -> None:
        facts = self._facts()
        self._journal.record(Event.DONOR_FAILED, **facts, step=step, donor=donor, reason=reason)
        for other in self._others:
            other.donor_failed(step, donor, reason)

    def served(self, num_bytes: int) -> None:
        self._record(Event.STATE_SERVED, bytes=num_bytes)
        for other in self._others:
            other.served(num_bytes)

    def learned(self, step: int, num_bytes_by_donor: dict[str, int], duration_s: float) -> None:
        self._record(
            Event.HEALED,
            step=step,
            bytes=sum(num_bytes_by_donor.values()),
            donors=sorted(num_bytes_by_donor),
            duration_s=round(duration_s, 6),
        )
        self._rank_healed("state", step, 0, num_bytes=num_bytes_by_donor)
        for other in self._others:
            other.learned(step, num_bytes_by_donor, duration_s)

    def caught_up(
        self, step: int, num_steps: int, *, num_bytes_by_donor: dict[str, int], duration_s: float
    ) -> None:
        self._record(
            Event.CAUGHT_UP,
            step=step,
            steps=num_steps,
            bytes=sum(num_bytes_by_donor.values()),
            donors=sorted(num_bytes_by_donor),
            duration_s=round(duration_s, 6),
        )
        self._rank_healed("gradients", step, num_steps, num_bytes=num_bytes_by_donor)
        for other in self._others:
            other.caught_up(
                step, num_steps, num_bytes_by_donor=num_bytes_by_donor, duration_s=duration_s
            )

    def _rank_healed(self, what: str, step: int, steps: int, *, num_bytes: dict[str, int]) -> None:
        if self._repaired:
            size, facts = sum(num_bytes.values()), {**self._facts(), "rank": self._place.rank}
            self._journal.record(
                Event.RANK_HEALED, **facts, what=what, step=step, steps=steps, bytes=size
            )

    def _record(self, event: Event, **facts: object) -> None:
        """Write one line for the replica: its first rank speaks for all."""
        if self._is_voice:
            self._journal.record(event, **self._facts(), **facts)

    def _facts(self) -> dict[str, object]:
        place = self._place
        return {
            "replica": place.replica_id,
            "incarnation": place.incarnation,
            "process_id": place.process_id,
        }
