"""The state of a ``Manager``'s user as a ``Work``: whatever ``state_dict`` gives, no checkpoints.

Owns the tensors that are compared, served and learned.  What is learned lies beside the user's
own until that thread loads it; until then it *is* the state as far as peers are concerned.

Invariants:
    T-1: the optimiser is the user's: ``apply`` tells that it may run, and waits until it has.
    H-2: the learner's tensors need not be those of its donors; a fresh optimiser has none yet.
    Q-9: all of the state is compared but what the user says may differ.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor

from danaus.collectives.fingerprint import fingerprint
from danaus.core.errors import NoQuorum
from danaus.ft.manifest import TensorFacts
from danaus.ft.saving import SaveNote
from danaus.ft.state_tree import flatten, unflatten
from danaus.quorum.messages import MemberId

_PROGRESS = "progress"


@dataclass(frozen=True, slots=True)
class ManagedResult:
    """What is known of a committed step: its loss and tokens are the user's own."""

    loss: float = float("nan")
    grad_norm: float = float("nan")
    num_tokens: int = 0


class ManagedWork:
    """Hold the user's state for peers.

    Args:
        on_commit: Called when a step is committed; returns once the optimiser has run.
        not_compared: Names, with wildcards, of tensors that may differ between replicas.
        first_step: Steps committed before this process began.
    """

    num_gradient_elements = 0

    def __init__(
        self,
        on_commit: Callable[[], None],
        *,
        not_compared: Sequence[str] = (),
        first_step: int = 0,
    ) -> None:
        self._on_commit, self._not_compared = on_commit, tuple(not_compared)
        self._first_step, self._moved = first_step, False
        self._lock = threading.Lock()  # guards the two states below
        self._named: dict[str, Tensor] = {}
        self._learned: dict[str, Tensor] | None = None
        self._room: dict[str, Tensor] = {}
        self._why_restored = ""

    # -- for the user's thread ----------------------------------------------------------------

    def capture(self, tree: Mapping[str, object], *, step: int, batches_committed: int) -> None:
        """Take note of the state as it is now; its tensors are the user's own."""
        named = flatten(tree)
        named[_PROGRESS] = torch.tensor([step, batches_committed])
        with self._lock:
            self._named = named

    def restored_for(self, reason: str) -> None:
        """Take note of why the run is about to go back."""
        self._why_restored = reason

    @property
    def has_learned(self) -> bool:
        """Tell whether a state was learned that is not loaded yet."""
        return self._learned is not None

    def take_learned(self) -> tuple[Any, int, int] | None:
        """Return a learned state once: the tree, its step and its ``batches_committed``."""
        with self._lock:
            learned = self._learned
            if learned is None:
                return None
            tree = unflatten(learned, self._named)
            # Loading may keep the tensors it is given; the state stays what it is.
            self._named, self._learned = learned, None
        step, batches_committed = learned[_PROGRESS].tolist()
        return tree, step, batches_committed

    # -- ft.healing.Roomy ---------------------------------------------------------------------

    def room(self, wanted: tuple[TensorFacts, ...]) -> dict[str, Tensor]:
        """Return new tensors for the state that donors serve."""
        self._room = {
            each.name: torch.empty(each.shape, dtype=getattr(torch, each.dtype)) for each in wanted
        }
        return self._room

    # -- ft.work.Work -------------------------------------------------------------------------

    @property
    def replays(self) -> bool:
        """Never: the optimiser is the user's, and steps in a thread of his."""
        return False

    def check(self, step: int, flat_P: Tensor) -> str | None:
        """Nothing: whether a step is fit is the user's to say."""
        return None

    def measure(self, flat_P: Tensor) -> float:
        return 0.0

    def apply(self, step: int, flat_P: Tensor, measures: Sequence[float] = ()) -> ManagedResult:
        self._moved = True
        self._on_commit()
        return ManagedResult()

    def state(self) -> dict[str, Tensor]:
        with self._lock:
            return self._named if self._learned is None else self._learned

    def loaded(self, step: int) -> None:
        with self._lock:
            self._learned, self._room = self._room, {}
        self._moved = True

    def restorable_step(self) -> int:
        return self._first_step

    def save_note(self, step: int) -> SaveNote:
        return SaveNote()

    def voted(
        self, step: int, fingerprints: Collection[str], notes: Mapping[MemberId, SaveNote]
    ) -> None:
        """Nothing to do: there are no checkpoints."""

    def restore(self, step: int, term: int) -> None:
        if step != self._first_step or self._moved:
            raise NoQuorum(
                f"this process cannot go back to step {step}: {self._why_restored}",
                "start the service with --resume, and each replica from the same checkpoint",
            )

    def fingerprint(self) -> str:
        compared = {
            name: tensor
            for name, tensor in self.state().items()
            if not any(fnmatchcase(name, pattern) for pattern in self._not_compared)
        }
        return fingerprint(compared)

    def agree(self, flag: bool) -> bool:
        return flag

    def sample_ids(self, step: int, leaf: int) -> tuple[int, ...]:
        return ()
