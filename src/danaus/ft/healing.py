"""How a learner gets its state from its peers, and how a member serves it (H-1, H-2).

Owns the two ends as a participant uses them: ``serve`` publishes a snapshot of the committed
step, ``learn`` fetches one.  Bytes and their checks are ``ft.transfer``'s.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol, runtime_checkable

from torch import Tensor

from danaus.core.clock import Deadline
from danaus.core.errors import DeadlinePassed, ExchangeAborted, StaleQuorum, TransferFailed
from danaus.ft import step_events as on
from danaus.ft.observer import Moment, Observer
from danaus.ft.state_server import StateServer
from danaus.ft.transfer import Fetch, FetchReport, Room
from danaus.ft.work import Work
from danaus.quorum.messages import Epoch
from danaus.wire.address import Address
from danaus.wire.blocking import PeerListener
from danaus.wire.secret import Secret

LEARN_LIMIT_S = 600.0


@runtime_checkable
class Roomy(Protocol):
    """A ``Work`` whose state has not the same tensors before it has learned as after."""

    @property
    def room(self) -> Room:
        """Makes the tensors that a transfer fills; ``loaded`` tells that they are."""
        ...


class Healer:
    """Serve and learn over the listener that peers dial anyway.

    Args:
        listener: Where learners dial this process.
        secret: The job's.
        observer: Told of moments, and of what was learned.
        aborted: Tells why an epoch has ended, None while it stands.
    """

    def __init__(
        self,
        listener: PeerListener,
        secret: Secret,
        observer: Observer,
        *,
        aborted: Callable[[Epoch], str | None],
    ) -> None:
        self._server = StateServer(listener)
        self._secret, self._observer, self._aborted = secret, observer, aborted
        self._lock = threading.Lock()
        self._fetching: tuple[Epoch, Fetch] | None = None
        self._num_bytes_told = 0

    def close(self) -> None:
        """Stop serving."""
        self._server.close()
        self._tell_served()

    @property
    def room_bytes(self) -> int:
        """Memory that snapshots may take."""
        return self._server.room_bytes

    def serve(self, order: on.Serve, state: dict[str, Tensor]) -> None:
        """Publish a snapshot of the state for the learners of an epoch."""
        self._server.publish(
            order.step,
            state,
            note=str(order.committed_epoch or ""),
            on_served=lambda: self._observer.moment(Moment.SERVING, order.step),
        )

    def withdraw(self) -> None:
        """Give a snapshot's memory back; transfers of it end."""
        self._server.withdraw()
        self._tell_served()

    def _tell_served(self) -> None:
        num_bytes = self._server.num_bytes_served - self._num_bytes_told
        if num_bytes:
            self._num_bytes_told += num_bytes
            self._observer.served(num_bytes)

    def abort(self, epoch: Epoch, reason: str) -> None:
        """Release the training thread if it learns in ``epoch``; from any thread."""
        with self._lock:
            if self._fetching is not None and self._fetching[0] == epoch:
                self._fetching[1].cancel(reason)

    def learn(self, order: on.Learn, work: Work) -> on.Learned | on.LearnFailed | on.Aborted:
        """Fetch the state of a step into ``work``, from all donors at once."""
        started = time.monotonic()
        donors = {
            str(seat.member): Address.parse(seat.data_address) for seat in order.learner.donors
        }
        self._observer.learning(order.step, tuple(donors))
        fetch = Fetch(
            donors,
            self._secret,
            order.step,
            into=work.room if isinstance(work, Roomy) else work.state(),
            on_bytes=lambda _: self._observer.moment(Moment.LEARNING, order.step),
        )
        try:
            report = self._fetch(order.epoch, fetch)
        except ExchangeAborted as aborted:
            return on.Aborted(order.epoch, aborted.reason)
        except (TransferFailed, StaleQuorum, DeadlinePassed) as failed:
            if isinstance(failed, TransferFailed):
                self._tell_tried(order.step, failed.tried)
            return on.LearnFailed(order.epoch, str(failed))
        self._tell_tried(order.step, report.tried)
        work.loaded(order.step)
        self._observer.learned(order.step, report.bytes_by_donor, time.monotonic() - started)
        return on.Learned(order.epoch, order.step, work.fingerprint(), _epoch(report.note))

    def _fetch(self, epoch: Epoch, fetch: Fetch) -> FetchReport:
        """Run a transfer that ends with its epoch at the latest (Q-5)."""
        with self._lock:
            self._fetching = epoch, fetch
        if (reason := self._aborted(epoch)) is not None:
            fetch.cancel(reason)
        try:
            return fetch.run(Deadline.after(LEARN_LIMIT_S))
        finally:
            with self._lock:
                self._fetching = None

    def _tell_tried(self, step: int, tried: dict[str, str]) -> None:
        for donor, why in tried.items():
            self._observer.donor_failed(step, donor, why)


def _epoch(text: str) -> Epoch | None:
    term, _, n = text.partition(".")
    return Epoch(int(term), int(n)) if n else None
