"""Fetches a committed step's state from its donors, from all of them at once (H-2).

Owns the learner's end; the donors' is ``state_server``.  One thread, the caller's, asks each
donor for chunks as fast as it serves them; bytes land where they belong.

Invariants:
    H-2: every chunk is checked; a damaged one, and those that a lost donor owed, are asked for
    again.  A transfer ends with every byte or with an error.
    Donors of one transfer agree on the step, its tensors and its fingerprint.
"""

from __future__ import annotations

import functools
import math
import select
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from danaus.collectives.dialling import CROWDED_RETRY_S
from danaus.collectives.tensor_bytes import local_shard, view_bytes
from danaus.core.clock import Deadline
from danaus.core.errors import (
    DeadlinePassed,
    ExchangeAborted,
    PeerLost,
    StaleQuorum,
    TransferFailed,
)
from danaus.core.nudge import Nudge
from danaus.ft.donor import MOST_BYTES, MOST_CHUNKS, Donor
from danaus.ft.manifest import Chunk, Manifest, TensorFacts, Wanted, cut, difference, facts_of
from danaus.wire.address import Address
from danaus.wire.secret import Secret

# A donor that owes chunks and is silent for this long is asked no more.
SILENCE_LIMIT_S = 5.0
_TRIES = 3
Room = Callable[[tuple[TensorFacts, ...]], Mapping[str, Tensor]]
"""Makes the tensors of a state of which a donor has told."""


@dataclass(frozen=True)
class FetchReport:
    """What a transfer has brought.

    Args:
        step: The committed step.
        note: The participant's words that came with it.
        fingerprint: The donors', if they gave one.
        num_bytes: Bytes of the state.
        bytes_by_donor: Who gave how many of them.
        num_wire_bytes: Bytes received in all, chunks that were asked for twice included.
        tried: Donors that failed, and why.
        left: Those of them that have left behind what was wanted, or never had it.
    """

    step: int
    note: str
    fingerprint: str
    num_bytes: int
    bytes_by_donor: dict[str, int]
    num_wire_bytes: int
    tried: dict[str, str]
    left: frozenset[str] = frozenset()


class Fetch:
    """One transfer; ``run`` it once.

    Args:
        donors: Where each donor listens, by name; the first are asked first.
        secret: The job's secret.
        wanted: Which committed step, or what of it.
        into: Its tensors, overwritten in place; of sharded ones the local shard.  Or what makes
            them once the donors have said which there are.
        on_bytes: Called with the number of bytes of each chunk that arrived.
        silence_limit_s: How long a donor that owes chunks may be silent.
    """

    def __init__(
        self,
        donors: Mapping[str, Address],
        secret: Secret,
        wanted: Wanted,
        *,
        into: Mapping[str, Tensor] | Room,
        on_bytes: Callable[[int], None] | None = None,
        silence_limit_s: float = SILENCE_LIMIT_S,
    ) -> None:
        self._step, self._on_bytes, self._silence_limit_s = wanted.step, on_bytes, silence_limit_s
        self._room = into if callable(into) else None
        self._furnish({} if callable(into) else into)
        self._donors = [
            Donor(name, address, secret=secret, wanted=wanted, taker=self)
            for name, address in donors.items()
        ]
        self._manifest: Manifest | None = None
        self._chunks: tuple[Chunk, ...] = ()
        self._pending: deque[int] = deque()
        self._num_missing = -1
        self._tried: dict[str, str] = {}
        self._stale: dict[str, StaleQuorum] = {}
        self._cancelled = ""
        self._lock = threading.Lock()  # guards the nudge's life
        self._nudge = Nudge()

    def _furnish(self, into: Mapping[str, Tensor]) -> None:
        """Take note of where the bytes go."""
        self._facts = facts_of(into)
        self._targets = [local_shard(into[facts.name]) for facts in self._facts]
        self._buffers = [
            tensor
            if tensor.device.type == "cpu" and tensor.is_contiguous()
            else torch.empty(tensor.shape, dtype=tensor.dtype)
            for tensor in self._targets
        ]
        self._views = [view_bytes(buffer) for buffer in self._buffers]

    def cancel(self, reason: str) -> None:
        """Let ``run`` end with ``ExchangeAborted``; from any thread, at any time."""
        with self._lock:
            self._cancelled = reason
            self._nudge.give()

    def run(self, deadline: Deadline) -> FetchReport:
        """Fetch what is wanted.

        After an error ``into`` holds bytes of nobody's state.

        Raises:
            StaleQuorum: All donors have left the step behind.
            TransferFailed: No donor is left, for other reasons too.
            ExchangeAborted: ``cancel`` was called.
            DeadlinePassed: Not done in time.
        """
        try:
            for donor in self._donors:
                self._attempt(donor, donor.open)
            while self._num_missing:
                self._check(deadline)
                self._spread(deadline)
                self._wait(deadline)
        finally:
            for donor in self._donors:
                donor.close()
            with self._lock:
                self._nudge.close()
        for target, buffer in zip(self._targets, self._buffers, strict=True):
            if target is not buffer:
                target.copy_(buffer)
        return self._report()

    def _report(self) -> FetchReport:
        assert self._manifest is not None  # nothing is missing
        return FetchReport(
            step=self._step,
            note=self._manifest.note,
            fingerprint=self._manifest.fingerprint,
            num_bytes=sum(donor.num_bytes for donor in self._donors),
            bytes_by_donor={donor.name: donor.num_bytes for donor in self._donors},
            num_wire_bytes=sum(donor.num_wire_bytes for donor in self._donors),
            tried=dict(self._tried),
            left=frozenset(self._stale),
        )

    # -- the loop -----------------------------------------------------------------------------

    def _check(self, deadline: Deadline) -> None:
        if self._cancelled:
            raise ExchangeAborted(self._cancelled)
        if not any(donor.is_open for donor in self._donors):
            if self._donors and len(self._stale) == len(self._donors):
                raise next(iter(self._stale.values()))
            raise TransferFailed(self._step, self._tried)
        if deadline.passed:
            raise DeadlinePassed(f"the state of step {self._step}", deadline.limit_s)

    def _spread(self, deadline: Deadline) -> None:
        """Ask every donor that has room for the next chunks, in turns."""
        now = deadline.clock.now()
        asked = True
        while asked and self._pending:
            asked = False
            for donor in self._donors:
                if self._pending and donor.has_room:
                    first, sizes = self._next_run()
                    self._attempt(donor, functools.partial(donor.ask, first, sizes, now))
                    asked = True

    def _next_run(self) -> tuple[int, list[int]]:
        """Take the next chunks in a row that one donor is asked for; return the first, and sizes.

        Towards the end they are few, so that all donors end together.
        """
        num_open = sum(donor.is_open for donor in self._donors)
        most = min(MOST_CHUNKS, max(1, len(self._pending) // (2 * num_open)))
        first = self._pending.popleft()
        sizes = [len(self.target(first))]
        num_bytes = sizes[0]
        while self._pending and len(sizes) < most and self._pending[0] == first + len(sizes):
            size = len(self.target(self._pending[0]))
            if num_bytes + size > MOST_BYTES:
                break
            num_bytes += size
            sizes.append(size)
            self._pending.popleft()
        return first, sizes

    def _wait(self, deadline: Deadline) -> None:
        """Wait until a donor can go on, then let it; give up those that stay silent."""
        poller = select.poll()
        poller.register(self._nudge, select.POLLIN)
        by_fd: dict[int, Donor] = {}
        limit_s = deadline.remaining_s()
        for donor in self._donors:
            if (polled := donor.polled) is not None:
                poller.register(polled, donor.interest)
                by_fd[polled.fileno()] = donor
            elif donor.is_open:
                limit_s = min(limit_s, CROWDED_RETRY_S)
            if donor.has_more:
                limit_s = 0.0
            if donor.owes:
                limit_s = min(limit_s, self._silence_limit_s)
        events = {by_fd[fd].name for fd, _ in poller.poll(math.ceil(limit_s * 1000)) if fd in by_fd}
        now = deadline.clock.now()
        for donor in self._donors:
            is_unpolled = donor.is_open and donor.polled is None
            if donor.name in events or donor.has_more or is_unpolled:
                self._attempt(donor, functools.partial(donor.advance, deadline.clock.now))
            elif donor.owes and now - donor.heard_at > self._silence_limit_s:
                self._lost(donor, f"silent for {now - donor.heard_at:.1f} s", again=True)

    def _attempt(self, donor: Donor, act: Callable[[], None]) -> None:
        """Let a donor act; go on without it if that fails."""
        try:
            act()
        except StaleQuorum as error:
            self._stale[donor.name] = error
            self._tried[donor.name] = error.message()
            self._pending.extendleft(reversed(donor.close()))
        except PeerLost as error:
            self._lost(donor, error.why, again=donor.was_connected)

    def _lost(self, donor: Donor, why: str, *, again: bool) -> None:
        """Take back what a donor owes; dial it again if that may help."""
        self._pending.extendleft(reversed(donor.close()))
        self._tried[donor.name] = why
        donor.num_failures += 1
        if again and donor.num_failures < _TRIES:
            self._attempt(donor, donor.open)

    # -- what donors say ----------------------------------------------------------------------

    def described(self, donor: Donor, manifest: Manifest) -> None:
        """Learn what a donor serves; the first one's word is the measure of the others'."""
        first = self._manifest
        if first is None and self._room is not None and manifest.step == self._step:
            self._furnish(self._room(manifest.tensors))
        why = difference(self._facts, manifest.tensors)
        if manifest.step != self._step:
            why = f"it serves step {manifest.step}"
        elif first is not None and first.chunk_bytes != manifest.chunk_bytes:
            why = f"it cuts chunks of {manifest.chunk_bytes} bytes"
        elif first is not None and first.fingerprint != manifest.fingerprint:
            why = f"its fingerprint is {manifest.fingerprint}, another's {first.fingerprint}"
        if why:
            donor.num_failures = _TRIES
            raise PeerLost(donor.name, why)
        if first is None:
            self._manifest = manifest
            self._chunks = cut(manifest)
            self._pending.extend(range(len(self._chunks)))
            self._num_missing = len(self._chunks)

    def target(self, index: int) -> memoryview:
        """Return where a chunk's bytes belong."""
        chunk = self._chunks[index]
        return self._views[chunk.tensor][chunk.start : chunk.stop]

    def arrived(self, donor: Donor, index: int) -> None:
        """Count a chunk."""
        donor.num_failures = 0
        self._num_missing -= 1
        if self._on_bytes is not None:
            self._on_bytes(len(self.target(index)))
