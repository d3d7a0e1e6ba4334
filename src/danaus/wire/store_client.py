"""The client of the rendezvous store, for threads.

It repeats a request over a new connection when one is lost; the table carries it out once.
"""

from __future__ import annotations

import contextlib
import itertools
import secrets
import threading
import time
from collections.abc import Iterator, Sequence

from danaus.core.clock import Deadline
from danaus.core.errors import AddressRefused, ChannelClosed, ConfigError
from danaus.wire.address import Address
from danaus.wire.blocking import dial_peer, recv_frame, send_frame
from danaus.wire.secret import Secret
from danaus.wire.store import (
    ANSWERS,
    CLIENT_ID_BYTES,
    REQUESTS,
    Add,
    Answer,
    Append,
    Check,
    CompareSet,
    Count,
    Delete,
    Get,
    Request,
    Set,
    Wait,
)
from danaus.wire.stream import Stream

STORE_LIMIT_S = 300.0
_PAUSE_S = 0.02
_MAX_IDLE = 8


class StoreClient:
    """A blocking client; any number of threads may ask at once, each over its own connection.

    Every method raises ``DeadlinePassed`` when ``limit_s`` passes first, also while the server
    cannot be reached, and ``HandshakeRefused`` when whoever is reached does not hold the secret.

    Args:
        address: Where ``serve_store`` or ``StoreThread`` serves.
        secret: The job's secret.
        limit_s: Seconds that a request may take, if the call names no other limit.
    """

    def __init__(self, address: Address, secret: Secret, *, limit_s: float = STORE_LIMIT_S) -> None:
        self.address = address
        self.limit_s = limit_s
        self._secret = secret
        self._client_id = secrets.token_bytes(CLIENT_ID_BYTES)
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._idle: list[Stream] = []
        self._busy: set[Stream] = set()
        self._closed = False

    def set(self, key: str, value: bytes, *, limit_s: float | None = None) -> None:
        """Give ``key`` a value."""
        self._ask(Set(next(self._numbers), key, value), limit_s)

    def get(self, key: str, *, limit_s: float | None = None) -> bytes:
        """Return the value of ``key``, waiting until it has one."""
        return self._ask(Get(next(self._numbers), key), limit_s).value

    def add(self, key: str, amount: int, *, limit_s: float | None = None) -> int:
        """Add to the number that ``key`` holds (none: 0); return the sum.

        Raises:
            ConfigError: Its value is no number.
        """
        return self._ask(Add(next(self._numbers), key, amount), limit_s).count

    def append(self, key: str, value: bytes, *, limit_s: float | None = None) -> None:
        """Append to the value of ``key`` (none: empty)."""
        self._ask(Append(next(self._numbers), key, value), limit_s)

    def compare_set(
        self, key: str, expected: bytes, desired: bytes, *, limit_s: float | None = None
    ) -> bytes:
        """Set ``key`` if its value is ``expected`` (empty: or it has none); return its value."""
        return self._ask(CompareSet(next(self._numbers), key, expected, desired), limit_s).value

    def wait(self, keys: Sequence[str], *, limit_s: float | None = None) -> None:
        """Wait until all keys have values."""
        self._ask(Wait(next(self._numbers), tuple(keys)), limit_s)

    def check(self, keys: Sequence[str], *, limit_s: float | None = None) -> bool:
        """Tell whether all keys have values."""
        return bool(self._ask(Check(next(self._numbers), tuple(keys)), limit_s).count)

    def delete(self, key: str, *, is_prefix: bool = False, limit_s: float | None = None) -> bool:
        """Remove ``key``, or all keys that begin with it; tell whether there was one."""
        request = Delete(next(self._numbers), key, is_prefix=is_prefix)
        return bool(self._ask(request, limit_s).count)

    def num_keys(self, *, limit_s: float | None = None) -> int:
        """Return how many keys there are."""
        return self._ask(Count(next(self._numbers)), limit_s).count

    def close(self) -> None:
        """Close every connection; requests under way end with ``ChannelClosed``."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            for stream in self._busy:
                stream.shut()  # wakes the thread that waits for it, which then closes it
        for stream in idle:
            stream.close()

    def _ask(self, request: Request, limit_s: float | None) -> Answer:
        deadline = Deadline.after(self.limit_s if limit_s is None else limit_s)
        while True:
            try:
                return _checked(self._ask_once(request, deadline))
            except (ChannelClosed, AddressRefused):
                if self._closed:
                    raise
                deadline.check(f"the store at {self.address}")
                time.sleep(min(_PAUSE_S, deadline.remaining_s()))

    def _ask_once(self, request: Request, deadline: Deadline) -> Answer:
        with self._connection(deadline) as stream:
            send_frame(stream, [REQUESTS.encode(request)], deadline=deadline)
            parts = recv_frame(stream, deadline=deadline)
            answer = ANSWERS.decode(b"".join(parts), str(self.address))
            if answer.number != request.number:
                raise ChannelClosed(str(self.address), "it answered another request")
            return answer

    @contextlib.contextmanager
    def _connection(self, deadline: Deadline) -> Iterator[Stream]:
        """Lend a connection; one that is not given back in order is closed."""
        with self._lock:
            if self._closed:
                raise ChannelClosed(str(self.address), "this side closed its client")
            stream = self._idle.pop() if self._idle else None
        if stream is None:
            stream = dial_peer(self.address, self._secret, self._client_id, deadline=deadline)
        with contextlib.ExitStack() as stack:
            stack.callback(stream.close)
            self._note(stream, busy=True)
            try:
                yield stream
            finally:
                self._note(stream, busy=False)
            if self._keeps(stream):
                stack.pop_all()

    def _keeps(self, stream: Stream) -> bool:
        with self._lock:
            keeps = not self._closed and len(self._idle) < _MAX_IDLE
            if keeps:
                self._idle.append(stream)
        return keeps

    def _note(self, stream: Stream, *, busy: bool) -> None:
        with self._lock:
            (self._busy.add if busy else self._busy.discard)(stream)
            if busy and self._closed:
                raise ChannelClosed(str(self.address), "this side closed its client")


def _checked(answer: Answer) -> Answer:
    if answer.refused:
        raise ConfigError(answer.refused)
    return answer
