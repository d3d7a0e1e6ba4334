"""What the commit shell asks of the thing that trains.

``train.replica.ReplicaWork`` is one; ``ft.plain_work`` makes one of a plain model and optimiser.  A
``Work`` knows nothing of quorums, replicas or votes: it holds a state after some step, computes
gradients against it, and changes it only in ``apply``, ``restore`` and ``loaded``.  A controller
imports this, so it loads no torch.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from danaus.ft.saving import SaveNote
from danaus.quorum.messages import MemberId

if TYPE_CHECKING:
    from torch import Tensor


class StepResult(Protocol):
    """What a committed step was."""

    @property
    def loss(self) -> float:
        """Mean loss per token of the global batch, nats."""
        ...

    @property
    def grad_norm(self) -> float:
        """Norm of the mean gradient before clipping."""
        ...

    @property
    def num_tokens(self) -> int:
        """Tokens of the global batch."""
        ...


class Work(Protocol):
    """The state of one rank, and the steps that change it."""

    @property
    def num_gradient_elements(self) -> int:
        """Length of the flat gradient of this rank, its tail included."""
        ...

    @property
    def replays(self) -> bool:
        """Tell whether ``apply`` gives the same state wherever its arguments are the same.

        Nothing but the state before, the step, the gradient, the measures and, of a ``Tuned`` one,
        its numbers may count then: a learner applies the members' steps after them, in a process in
        which none was computed.
        """
        ...

    def check(self, step: int, flat_P: Tensor) -> str | None:
        """Return why the reduced gradient must not be applied, or None."""
        ...

    def measure(self, flat_P: Tensor) -> float:
        """Return what the other ranks of this replica must know of this rank's gradient.

        Its squared norm, say: it is exchanged before the vote, since ``apply`` must not wait for
        anybody.
        """
        ...

    def apply(self, step: int, flat_P: Tensor, measures: Sequence[float]) -> StepResult:
        """Run the optimiser in place with the summed gradient; the state is ``step``'s then.

        A rank may know that the step is committed while another rank of its replica still has to
        ask for it: nothing here may need the others.

        Args:
            step: The step.
            flat_P: The summed gradient.
            measures: What ``measure`` returned at each rank of this replica, by rank.
        """
        ...

    def state(self) -> dict[str, Tensor]:
        """Return every tensor of the state by name: views, written in place by a transfer."""
        ...

    def loaded(self, step: int) -> None:
        """Take note that the tensors of ``state()`` now hold the state after ``step``."""
        ...

    def restorable_step(self) -> int:
        """Return the newest step that ``restore`` can go to (0: the seed's weights)."""
        ...

    def save_note(self, step: int) -> SaveNote:
        """Return what the others must know of this one's checkpoints with its vote (H-5)."""
        ...

    def voted(
        self, step: int, fingerprints: Collection[str], notes: Mapping[MemberId, SaveNote]
    ) -> None:
        """Take note of what all members said with their votes on ``step``.

        Args:
            step: The step.
            fingerprints: Those that the members of this rank gave of the state before it (Q-9).
            notes: What each said of checkpoints.
        """
        ...

    def restore(self, step: int, term: int) -> None:
        """Go back to the checkpoint of ``step``, or to the seed's weights (0).

        The run goes on in ``term``: checkpoints of later steps and lower terms are void.
        """
        ...

    def fingerprint(self) -> str:
        """Return the fingerprint of the state as it is in memory now (Q-9)."""
        ...

    def agree(self, flag: bool) -> bool:
        """Return whether any rank of this replica has ``flag`` set; the same to all of them."""
        ...

    def sample_ids(self, step: int, leaf: int) -> tuple[int, ...]:
        """Return the samples of one leaf of one step, whoever computes it."""
        ...


@runtime_checkable
class Tuned(Protocol):
    """A ``Work`` whose ``apply`` goes by numbers that its user changes from step to step."""

    @property
    def numbers(self) -> tuple[float, ...]:
        """Those by which the next ``apply`` goes; as many in each process of the run."""
        ...

    def tune(self, numbers: Sequence[float]) -> None:
        """Have the next ``apply`` go by these."""
        ...


def numbers_of(work: Work) -> tuple[float, ...]:
    """Return the numbers by which the next ``apply`` goes; none where it is not ``Tuned``."""
    return work.numbers if isinstance(work, Tuned) else ()
