"""Writes one rank's checkpoints beside the training (H-5).

Owns ``Saver``: the copy of the state that is taken at a boundary, its bounded memory, and the
thread that brings it to the disk.  Of which step one is written is decided in ``ft.saving``; what
lies on the disk is ``train.checkpoint``'s.

Invariants:
    H-5: nothing but the copy keeps the training thread; one is written at a time.
    Q-9: a part counts once a vote has found all members to share the state that it is of.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from torch import Tensor

from danaus.core.clock import Clock, Deadline, MonotonicClock
from danaus.ft.saving import Decision, SaveNote, SavePlan, decide, verdict
from danaus.ft.snapshot import Snapshot, SnapshotRoom
from danaus.quorum.messages import MemberId
from danaus.train.checkpoint import Checkpoints, Writer, Written
from danaus.train.checkpoint_file import Part

LAST_LIMIT_S = 600.0
"""How long the end of a run waits for the disk."""
_LOOK_S = 0.5
_CLOSE_LIMIT_S = 1.0


@dataclass
class _Job:
    """One checkpoint on its way; what stands in it changes under the saver's lock."""

    step: int
    writer: Writer
    agreed: bool = False
    held: bool = False
    dropped: str = ""
    ended: Written | None = None
    told: bool = True

    @property
    def settled(self) -> bool:
        return self.agreed or bool(self.dropped)


class Saver:
    """Write the checkpoints of one rank.

    Args:
        me: This member.
        checkpoints: Where they lie.
        plan: When one is due.
        room: Memory for copies; a quarter of what is free now, unless given.
        clock: Measures what is due and what it costs.
    """

    def __init__(
        self,
        me: MemberId,
        checkpoints: Checkpoints,
        plan: SavePlan,
        *,
        room: SnapshotRoom | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._me, self._checkpoints, self._plan = me, checkpoints, plan
        self._room, self._clock = room or SnapshotRoom(), clock or MonotonicClock()
        self.tell: Callable[[Written], None] = lambda _: None
        """Told on the saver's thread what became of each."""
        self._decided: tuple[int, Decision] = (0, "no")
        self._due_at = self._decided_at = self._clock.now()
        self._cost_s = 0.0
        self._lock = threading.Condition()  # guards what follows
        self._job: _Job | None = None
        self._complete = 0
        self._thread: threading.Thread | None = None

    @property
    def room_bytes(self) -> int:
        """Memory that copies may take; without it the training waits for the disk."""
        return self._room.room_bytes

    # -- what members tell each other ---------------------------------------------------------

    def note(self, step: int) -> SaveNote:
        """Return what the other members must know with this one's vote on ``step``."""
        decided, decision = self._decided
        if decision != "no" and decided < step:  # it is committed; until then it may come again
            self._due_at = self._decided_at
        with self._lock:
            idle_s = self._clock.now() - self._due_at
            return SaveNote(idle_s, self._cost_s, self._job is not None, self._complete)

    def voted(
        self, step: int, fingerprints: Collection[str], notes: Mapping[MemberId, SaveNote]
    ) -> None:
        """Take note of all members' votes on ``step``; see ``ft.work.Work.voted``."""
        with self._lock:
            self._complete = max(self._complete, *(note.complete for note in notes.values()))
            self._judge(step - 1, fingerprints)
        self._decide(step, notes)

    def _judge(self, step: int, fingerprints: Collection[str]) -> None:
        job = self._job
        if job is None or job.settled:
            return
        written = job.writer.fingerprint
        found = verdict(written, fingerprints) if job.step == step else "open"
        if found == "agreed":
            job.agreed = True
        elif found == "wrong":
            job.dropped = (
                f"written of a state with fingerprint {written}, "
                f"all members have {min(fingerprints)}"
            )
        elif job.step < step:
            job.dropped = "the votes that tell of which state it is did not all come"
        self._lock.notify_all()

    def _decide(self, step: int, notes: Mapping[MemberId, SaveNote]) -> None:
        self._decided = (step, decide(self._plan, step, notes))
        self._decided_at = self._clock.now()

    def decision(self, step: int) -> Decision:
        """Return whether the state after ``step``, which is committed, is to be written."""
        if self._decided[0] != step:  # an announcement has committed it, not its votes
            self._decide(step, {self._me: self.note(step)})
        return self._decided[1]

    # -- writing ------------------------------------------------------------------------------

    def save(self, step: int, state: Mapping[str, Tensor], writer: Writer) -> bool:
        """Have the state after ``step`` written; it may change once this returns.

        Returns:
            Whether it is written beside the training; else there was no room for a copy.
        """
        began = self._clock.now()
        job = _Job(step, writer)
        with self._lock:
            self._job = job
        snapshot = self._room.take(
            state, step, note="", fingerprint=writer.fingerprint, on_served=None
        )
        copied = snapshot.buffer is not None
        part = None if copied else self._write_part(job, snapshot)
        self._thread = threading.Thread(
            target=self._run, args=(job, snapshot, part), name="danaus checkpoint", daemon=True
        )
        self._thread.start()
        self._cost_s = self._clock.now() - began
        return copied

    def save_last(
        self,
        step: int,
        state: Mapping[str, Tensor],
        writer: Writer,
        *,
        on_wait: Callable[[], None],
    ) -> Written:
        """Write the state after the last step of this process: nothing is left to go on with.

        Args:
            step: The step.
            state: This rank's tensors.
            writer: Who writes.
            on_wait: Called now and then while the one before is still being written.
        """
        deadline = Deadline.after(LAST_LIMIT_S)
        with self._lock:
            job = self._job
            if job is not None and job.step == step:
                # Nobody is left to vote on it; the other ranks may have written theirs already.
                job.agreed, job.told = True, False
                self._lock.notify_all()
            elif job is not None and not job.agreed:
                self._drop(f"that of step {step} takes its place")
            if not self._until(lambda: self._job is None, deadline, on_wait):
                return Written(step, False, "the one before is still being written")
        if job is not None and job.step == step and job.ended is not None:
            return job.ended
        written = self._checkpoints.write(step, state, writer)
        self._ended(written)
        return written

    def save_unseen(
        self,
        step: int,
        state: Mapping[str, Tensor],
        writer: Writer,
        *,
        on_wait: Callable[[], None],
    ) -> None:
        """Write the state after the run's last step, which no vote follows.

        It counts once ``save_last`` says so; on return it is on the disk, or never will be.

        Args:
            step: The step.
            state: This rank's tensors.
            writer: Who writes.
            on_wait: Called now and then meanwhile.
        """
        deadline = Deadline.after(LAST_LIMIT_S)
        with self._lock:
            if self._job is not None and not self._job.agreed:
                self._drop(f"that of step {step} takes its place")
            free = self._until(lambda: self._job is None, deadline, on_wait)
        if free:
            self.save(step, state, writer)
            with self._lock:
                self._until(lambda: self._job is None or self._job.held, deadline, on_wait)

    def _until(
        self, is_so: Callable[[], bool], deadline: Deadline, on_wait: Callable[[], None]
    ) -> bool:
        """Wait with the lock; tell whether it came to be so before the deadline."""
        while not is_so():
            if deadline.passed:
                return False
            self._lock.wait(_LOOK_S)
            on_wait()
        return True

    def _run(self, job: _Job, snapshot: Snapshot, part: Part | Written | None) -> None:
        written = Written(job.step, False, "writing it broke off")
        try:
            written = self._bring(job, part or self._write_part(job, snapshot))
        finally:
            with self._lock:
                self._job, job.ended = None, written
                self._lock.notify_all()
            if job.told:
                self.tell(written)

    def _write_part(self, job: _Job, snapshot: Snapshot) -> Part | Written:
        try:
            return self._checkpoints.write_part(
                job.step, snapshot, job.writer, stop=lambda: bool(job.dropped)
            )
        finally:
            self._room.give_back(snapshot)

    def _bring(self, job: _Job, part: Part | Written) -> Written:
        """Make a part count once it is known to be of the right state."""
        if isinstance(part, Written):
            return Written(job.step, False, job.dropped or part.reason)
        with self._lock:
            job.held = True
            self._lock.notify_all()
            self._lock.wait_for(lambda: job.settled)
        if not job.dropped:
            written = self._checkpoints.finish(job.step, part, job.writer)
            if not job.dropped:
                self._ended(written)
                return written
        return self._checkpoints.abandon(job.step, job.writer, job.dropped)

    def _ended(self, written: Written) -> None:
        if written.complete:
            with self._lock:
                self._complete = max(self._complete, written.step)

    # -- going back, ending -------------------------------------------------------------------

    def reset(self, step: int) -> None:
        """Drop what is being written: the run goes back to ``step``."""
        with self._lock:
            self._drop(f"the run goes back to step {step}")
            self._complete = step

    def relearned(self) -> None:
        """Drop what may be of another state than the one that was learned."""
        with self._lock:
            if self._job is not None and not self._job.agreed:
                self._drop("this replica has learned its state from the others since")
            self._complete = 0

    def close(self) -> None:
        """Drop what no vote has settled; wait a moment for what is nearly there."""
        with self._lock:
            if self._job is not None and not self._job.agreed:
                self._drop("the process ends")
            thread = self._thread
        if thread is not None:
            thread.join(_CLOSE_LIMIT_S)

    def _drop(self, reason: str) -> None:
        if self._job is not None:
            self._job.dropped = self._job.dropped or reason
            self._lock.notify_all()
