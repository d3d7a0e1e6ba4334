"""Hosts that wait to be joined within programs that do other things, before or meanwhile.

What a waiting host is, and does, lies in ``waiting_host``.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import threading
from collections.abc import Callable
from pathlib import Path

from danaus.actor.attempt import Attempt
from danaus.actor.future import Future
from danaus.actor.waiting_host import WaitingHost, places_of, serve_until_told
from danaus.actor.waiting_work import HostPlaces
from danaus.wire.address import Address

_LISTEN_LIMIT_S = 30.0
_END_LIMIT_S = 10.0


def run_worker_loop_until_shutdown(
    address: Address | str,
    secret: Path | str,
    *,
    run_dir: Path | str | None = None,
    name: str = "",
    say: Callable[[str], None] = print,
) -> None:
    """Let this host be joined, and return once the job that has joined it lets go of it.

    That is when its mesh of hosts is shut down, when its program ends, or when that is gone.
    Signals do what they do to ``run_worker_loop_forever``.

    Args:
        address: As of ``run_worker_loop_forever``.
        secret: As there.
        run_dir: As there.
        name: As there.
        say: As there.

    Raises:
        AddressRefused: The address cannot be bound.
        ConfigError: There is no secret.
    """
    with places_of(address, secret, run_dir=run_dir, name=name) as places:
        asyncio.run(serve_until_told(places, say, until_shutdown=True))


def start_worker_loop_forever(
    address: Address | str,
    secret: Path | str,
    *,
    run_dir: Path | str | None = None,
    name: str = "",
    say: Callable[[str], None] = print,
) -> Future[None]:
    """Let this host be joined while the program goes on; with the program it ends (P-4).

    Args:
        address: As of ``run_worker_loop_forever``.
        secret: As there.
        run_dir: As there.
        name: As there.
        say: As there.

    Returns:
        A future of its end, once it listens; cancelling it ends the host.

    Raises:
        AddressRefused: The address cannot be bound.
        ConfigError: There is no secret.
    """
    beside = _Beside(say)

    def run() -> None:
        named = places_of(address, secret, run_dir=run_dir, name=name)
        with Attempt() as attempt, named as places:
            asyncio.run(beside.serve(places))
        beside.is_over(attempt.error)

    beside.begin(run)
    return beside.ended


class _Beside:
    """A host on a thread of its own.

    Args:
        say: Shows a line to the person at the host.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self.ended: Future[None] = Future("a host to end", on_cancel=self._stop)
        self._say = say
        self._listens: Future[None] = Future("a host to listen")
        self._stopping: Callable[[], object] = lambda: None
        self._thread: threading.Thread | None = None

    def begin(self, run: Callable[[], None]) -> None:
        """Run it; return once it listens, or raise why it does not."""
        self._thread = threading.Thread(target=run, name="danaus-host", daemon=True)
        self._thread.start()
        atexit.register(self._stop)
        self._listens.get(_LISTEN_LIMIT_S)

    async def serve(self, places: HostPlaces) -> None:
        """Serve until it is stopped."""
        loop, ending = asyncio.get_running_loop(), asyncio.Event()
        self._stopping = functools.partial(loop.call_soon_threadsafe, ending.set)

        def listening(at: Address) -> None:
            self._say(f"{places.name} waits to be joined at {at}")
            self._listens.set_value(None)

        await WaitingHost(places, self._say).run(ending, listening)

    def is_over(self, error: Exception | None) -> None:
        """Tell whoever waits that nothing of it is left, or why it never was."""
        atexit.unregister(self._stop)
        if error is None:
            self.ended.set_value(None)
        else:
            self._listens.set_error(error)
            self.ended.set_error(error)

    def _stop(self) -> None:
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            self._stopping()
            thread.join(_END_LIMIT_S)
