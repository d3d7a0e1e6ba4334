"""One rank of a replica as the commit shell drives it: trainer and checkpoints together.

Owns ``ReplicaWork``, which is a ``ft.work.Work``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path

from torch import Tensor

from danaus.core.errors import CheckpointDamaged
from danaus.ft.place import Place
from danaus.ft.saving import Decision, SaveNote
from danaus.quorum.messages import Epoch, MemberId
from danaus.train.checkpoint import Checkpoints, Writer, Written
from danaus.train.config import TrainConfig
from danaus.train.parallel import ShardPlace
from danaus.train.resharding import Pieces, cut_anew
from danaus.train.saver import Saver
from danaus.train.trainer import StepResult, Trainer


class ReplicaWork:
    """A trainer, and where its checkpoints lie.

    Args:
        trainer: What trains.
        place: Who this process is.
        folder: Where the run's checkpoints lie.
    """

    def __init__(self, trainer: Trainer, place: Place, folder: Path) -> None:
        self.trainer, self.place = trainer, place
        self.last_result: StepResult | None = None
        keep = trainer.config.checkpoint.keep
        self._distrusts_disk = False
        self._checkpoints = Checkpoints(folder, identity=self.identity, keep=keep)
        self._saver = self._make_saver()

    def _make_saver(self) -> Saver:
        return Saver(self.place.member, self._checkpoints, self.trainer.config.save_plan())

    @classmethod
    def build(
        cls, config: TrainConfig, place: Place, *, shards: ShardPlace, folder: Path
    ) -> ReplicaWork:
        """Make the work of one rank.

        Args:
            config: The run.
            place: Who this process is.
            shards: Its place among the ranks of its replica.
            folder: Where checkpoints lie.
        """
        trainer = Trainer(config, shards)
        return cls(trainer, place, folder)

    def begin_again(self, place: Place) -> None:
        """Go on under another name, after ``close``; the state stays as it is (H-3).

        Args:
            place: Who this process is now.
        """
        self.place = place
        self.trainer.build_again()
        self._saver = self._make_saver()

    @property
    def identity(self) -> str:
        """Digest of the settings and the text that the bits depend on."""
        return self.trainer.identity

    @property
    def samples_per_data_epoch(self) -> int:
        """Samples in one pass over the text."""
        return self.trainer.data.num_windows

    # -- ft.work.Work -----------------------------------------------------------------------

    @property
    def num_gradient_elements(self) -> int:
        return self.trainer.num_elements

    @property
    def replays(self) -> bool:
        """Always: the learning rate is a function of the step."""
        return True

    def compute_leaf(self, step: int, microbatches: range) -> Tensor:
        """Return the gradient of one leaf, ``[P]`` float32, valid until the next call."""
        return self.trainer.compute_leaf(step, microbatches)

    def take_waited_s(self) -> float:
        """Return how long this rank waited for its siblings since it was last asked, in seconds."""
        return self.trainer.place.take_waited_s()

    def check(self, step: int, flat_P: Tensor) -> str | None:
        return self.trainer.check(flat_P)

    def measure(self, flat_P: Tensor) -> float:
        return self.trainer.measure(flat_P)

    def apply(self, step: int, flat_P: Tensor, measures: Sequence[float]) -> StepResult:
        self.last_result = self.trainer.apply(step, flat_P, measures)
        return self.last_result

    def state(self) -> dict[str, Tensor]:
        return self.trainer.state()

    def loaded(self, step: int) -> None:
        """The tensors that were written are all of the trainer's state."""
        self._saver.relearned()

    def restorable_step(self) -> int:
        """As far as can be told without reading a tensor; once one was damaged, all are read."""
        if self._distrusts_disk:
            return self._checkpoints.latest_valid()
        return self._checkpoints.latest_sound()

    def restore(self, step: int, term: int) -> None:
        self._saver.reset(step)
        if step == 0:
            self.trainer.reset()
        else:
            try:
                self._load(step)
            except CheckpointDamaged:
                self._distrusts_disk = True
                raise
        self._checkpoints.drop_after(step, term)

    def _load(self, step: int) -> None:
        rank, num_ranks = self.place.rank, self.place.num_ranks
        if self._checkpoints.num_ranks(step) != num_ranks:
            self._load_cut_anew(step)
            return
        tensors, known = self._checkpoints.read(step, rank=rank, num_ranks=num_ranks)
        self.trainer.load(tensors)
        _compare(step, known, self.fingerprint())

    def _load_cut_anew(self, step: int) -> None:
        """Load this rank's rows of what another number of ranks has written."""
        trainer = self.trainer
        tensors, lack = cut_anew(trainer.state(), trainer.pieces(), self._checked_parts(step))
        if lack:
            raise CheckpointDamaged(path=f"checkpoint of step {step}", why=lack)
        trainer.load(tensors)

    def _checked_parts(self, step: int) -> Iterator[tuple[dict[str, Tensor], Pieces]]:
        for part, tensors in self._checkpoints.read_all(step):
            _compare(step, part.fingerprint, self.trainer.fingerprint_of(tensors))
            yield tensors, part.pieces

    def save_note(self, step: int) -> SaveNote:
        return self._saver.note(step)

    def voted(
        self, step: int, fingerprints: Collection[str], notes: Mapping[MemberId, SaveNote]
    ) -> None:
        self._saver.voted(step, fingerprints, notes)

    def fingerprint(self) -> str:
        return self.trainer.fingerprint()

    def sha256(self) -> str:
        """Return the SHA-256 of every byte of this rank's state."""
        return self.trainer.sha256()

    def agree(self, flag: bool) -> bool:
        return self.trainer.place.agree(flag)

    def sample_ids(self, step: int, leaf: int) -> tuple[int, ...]:
        return self.trainer.sample_ids(step, leaf)

    # -- checkpoints ------------------------------------------------------------------------

    @property
    def last_step(self) -> int:
        """The run's last step."""
        return self.trainer.config.step.num_steps

    @property
    def checkpoint_room_bytes(self) -> int:
        """Memory that the copies of checkpoints may take."""
        return self._saver.room_bytes

    def on_checkpoint(self, tell: Callable[[Written], None]) -> None:
        """Have ``tell`` called, on a thread of its own, with what became of each checkpoint."""
        self._saver.tell = tell

    def checkpoint_decision(self, step: int) -> Decision:
        """Return whether the state after ``step``, just applied, is to be written."""
        return self._saver.decision(step)

    def checkpoint(self, step: int, epoch: Epoch, fingerprint: str) -> bool:
        """Have the state after ``step`` written beside the training.

        Args:
            step: The step, just applied.
            epoch: In which it was voted.
            fingerprint: Of this rank's state.

        Returns:
            Whether it is; else there was no room for a copy, and the training waited for the disk.
        """
        writer = self._writer(epoch, fingerprint)
        return self._saver.save(step, self.trainer.state(), writer)

    def checkpoint_last(
        self, step: int, epoch: Epoch, fingerprint: str, *, on_wait: Callable[[], None]
    ) -> None:
        """Write the state after the run's last step; ``checkpoint_now`` makes it count.

        No vote follows that would tell whether all members share it: their end does.

        Args:
            step: The step.
            epoch: In which it was voted.
            fingerprint: Of this rank's state.
            on_wait: Called now and then meanwhile.
        """
        writer = self._writer(epoch, fingerprint)
        self._saver.save_unseen(step, self.trainer.state(), writer, on_wait=on_wait)

    def checkpoint_now(
        self, step: int, epoch: Epoch, fingerprint: str, *, on_wait: Callable[[], None]
    ) -> Written:
        """Write the state after ``step``, which is the last that this process applies.

        What ``checkpoint_last`` has written of it is made to count.

        Args:
            step: The step.
            epoch: In which it was voted.
            fingerprint: Of this rank's state.
            on_wait: Called now and then while the one before is still being written.
        """
        writer = self._writer(epoch, fingerprint)
        return self._saver.save_last(step, self.trainer.state(), writer, on_wait=on_wait)

    def _writer(self, epoch: Epoch, fingerprint: str) -> Writer:
        place = self.place
        at = (epoch.term, epoch.n)
        return Writer(
            place.replica_id,
            at,
            place.rank,
            place.num_ranks,
            fingerprint,
            self.trainer.pieces(),
        )

    def close(self) -> None:
        """End what writes checkpoints."""
        self._saver.close()


def _compare(step: int, known: str, found: str) -> None:
    if known and known != found:
        why = f"its state's fingerprint is {found}, it was written as {known}"
        raise CheckpointDamaged(path=f"checkpoint of step {step}", why=why)
