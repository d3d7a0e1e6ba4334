"""The agent's side of its nursery: keep one running, ask it for workers.

A nursery may die or be stopped at any moment (P-7).  Dead: a new one is started, and requests to
which there was no whole answer are made again; of the old one's processes none becomes a worker
before that answer is on its way.  Stopped: it is killed, then as above.  The workers of the old one
go on either way: the agent adopts them.

Nothing here waits for the nursery: what its socket does not take at once is kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Callable
from typing import Protocol

import msgspec

from danaus.actor import boot, procfs
from danaus.actor import nursery_messages as talk
from danaus.actor.nursery_stream import READ_BYTES, Incoming, framed
from danaus.actor.restart import Restart, RestartBudget
from danaus.core.clock import MonotonicClock
from danaus.core.errors import FrameDamaged, MessageTooLarge

_LOOK_AT_S = 1.0  # a fork takes milliseconds: look at a nursery that has not answered by then
_ANSWER_LIMIT_S = 20.0
_END_LIMIT_S = 1.0
_BUDGET = Restart(intensity=8, period_s=60.0, backoff_s=0.2, max_backoff_s=5.0)


class Keeper(Protocol):
    """Whom the client tells."""

    def forked(self, message: talk.Forked) -> None:
        """A worker exists."""

    def fork_failed(self, process_id: str, why: str) -> None:
        """There will be no such worker."""

    def reaped(self, message: talk.Reaped) -> None:
        """A worker has ended."""

    def note(self, text: str) -> None:
        """Write a line to the agent's log."""


class NurseryClient:
    """Keeps a nursery alive on the running loop.

    Args:
        settings: What each new nursery is told.
        keeper: Whom to tell.
        log_path: Where the nursery's own output goes.
        environment: Its environment, and with it that of the workers.
        registered: Called with pid and start time of each nursery, before it is used.
    """

    def __init__(
        self,
        settings: talk.NurserySettings,
        keeper: Keeper,
        *,
        log_path: str,
        environment: dict[str, str],
        registered: Callable[[int, int], None],
    ) -> None:
        self._settings = settings
        self._keeper = keeper
        self._log_path = log_path
        self._environment = environment
        self._registered = registered
        self._loop = asyncio.get_running_loop()
        self._budget = RestartBudget(_BUDGET)
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._incoming = Incoming("the nursery")
        self._outgoing = bytearray()
        self._heard_at = 0.0
        self._is_ready = False
        self._stopped_looks = 0
        self._open: dict[str, talk.WorkerSpec] = {}  # asked for, not yet answered
        self._sent: dict[str, asyncio.TimerHandle] = {}
        self._closed = False
        self._gave_up = ""

    @property
    def pid(self) -> int:
        """Pid of the present nursery, 0 while there is none."""
        return self._process.pid if self._process else 0

    def start(self) -> None:
        """Start a nursery; requests wait until it is ready."""
        try:
            self._launch()
        except OSError as error:  # no memory, no descriptors: there may be some again
            self._end()
            self._replace(f"a nursery cannot be started: {error}")

    def _launch(self) -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        self._socket, self._incoming, self._stopped_looks = ours, Incoming("the nursery"), 0
        lifeline = self._settings.lifeline_fd
        with theirs, open(self._log_path, "ab", opener=_private) as log:
            self._process = subprocess.Popen(
                boot.command("danaus.actor.nursery", str(theirs.fileno())),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(theirs.fileno(), lifeline),
                env=self._environment,
            )
        stat = procfs.read_stat(self._process.pid)
        self._registered(self._process.pid, stat.started if stat else 0)
        self._loop.add_reader(ours, self._readable)
        self._say(self._settings)

    def fork(self, spec: talk.WorkerSpec) -> None:
        """Ask for a worker; the keeper is told of it, or of its failure."""
        if self._gave_up or self._closed:
            self._keeper.fork_failed(spec.process_id, self._gave_up or "the agent is ending")
            return
        self._open[spec.process_id] = spec
        if self._is_ready:
            self._send(spec)

    def withdraw(self, process_id: str) -> bool:
        """Take back a request that has not been sent; false if it has."""
        return process_id not in self._sent and self._open.pop(process_id, None) is not None

    def look(self) -> None:
        """Look at the nursery's state, now and then; a stopped one is replaced."""
        stat = procfs.read_stat(self.pid) if self._process else None
        if stat is None or not stat.is_stopped:
            self._stopped_looks = 0
            return
        self._stopped_looks += 1
        if self._stopped_looks >= 2:  # it was not resumed between two looks
            self._kill("is stopped")

    def close(self) -> None:
        """End the nursery.  Its workers are not touched."""
        self._closed = True
        for timer in self._sent.values():
            timer.cancel()
        self._sent.clear()
        self._end()

    # -- talking -------------------------------------------------------------------------------

    def _send(self, spec: talk.WorkerSpec) -> None:
        try:
            self._say(spec)
        except MessageTooLarge as error:
            self._answered(spec.process_id)
            self._keeper.fork_failed(spec.process_id, str(error))
            return
        self._sent[spec.process_id] = self._loop.call_later(
            _LOOK_AT_S, self._overdue, spec.process_id, self._loop.time()
        )

    def _say(self, message: talk.ToNursery) -> None:
        self._outgoing += framed(talk.encode(message))
        self._write()

    def _write(self) -> None:
        if self._socket is None:
            return
        try:
            while self._outgoing:
                del self._outgoing[: self._socket.send(self._outgoing)]
        except BlockingIOError:
            self._loop.add_writer(self._socket, self._write)
            return
        except OSError:
            self._outgoing.clear()  # it has died: end of file is on its way, and another try
        self._loop.remove_writer(self._socket)

    def _overdue(self, process_id: str, sent_at: float) -> None:
        # Many requests are answered one after the other: what counts is that there are answers.
        waited_s = self._loop.time() - max(sent_at, self._heard_at)
        stat = procfs.read_stat(self.pid)
        if stat is None or stat.is_stopped or waited_s >= _ANSWER_LIMIT_S:
            self._kill(f"has not answered for {waited_s:.1f} s")
        else:
            self._sent[process_id] = self._loop.call_later(
                _LOOK_AT_S, self._overdue, process_id, sent_at
            )

    def _kill(self, why: str) -> None:
        if self._process is not None:
            self._keeper.note(f"nursery {self.pid} {why}; it is killed and replaced")
            self._process.send_signal(signal.SIGKILL)

    def _answered(self, process_id: str) -> None:
        self._open.pop(process_id, None)
        timer = self._sent.pop(process_id, None)
        if timer is not None:
            timer.cancel()

    def _readable(self) -> None:
        while self._socket is not None:
            try:
                data = self._socket.recv(READ_BYTES)
                messages = [talk.from_nursery.decode(each) for each in self._incoming.filled(data)]
            except BlockingIOError:
                return
            except (FrameDamaged, msgspec.DecodeError) as error:
                self._lost(f"says what is no message ({error})")
                return
            except OSError:
                data, messages = b"", []
            if not data:
                self._lost()
                return
            self._heard_at = self._loop.time()
            for message in messages:
                self._take(message)

    def _take(self, message: talk.FromNursery) -> None:
        match message:
            case talk.NurseryReady():
                self._take_ready(message)
            case talk.Forked():
                self._answered(message.process_id)
                self._keeper.forked(message)
            case talk.ForkFailed():
                self._answered(message.process_id)
                self._keeper.fork_failed(message.process_id, message.why)
            case talk.Reaped():
                self._keeper.reaped(message)

    def _take_ready(self, message: talk.NurseryReady) -> None:
        self._keeper.note(f"nursery {self.pid} ready after {message.took_s:.2f} s")
        for name, why in message.missing.items():
            self._keeper.note(f"nursery could not import {name}: {why}")
        if message.num_threads > 1:
            self._keeper.note(f"nursery runs {message.num_threads} threads; forks may be unsafe")
        self._is_ready = True
        for spec in list(self._open.values()):
            self._send(spec)

    # -- losing --------------------------------------------------------------------------------

    def _lost(self, why: str = "") -> None:
        process = self._end()
        if process is None or self._closed:
            return
        for timer in self._sent.values():
            timer.cancel()
        self._sent.clear()
        self._replace(f"nursery {process.pid} {why or f'ended ({process.returncode})'}")

    def _replace(self, why: str) -> None:
        """Start another nursery, unless too many were lost of late."""
        decision = self._budget.decide((0,), 1, MonotonicClock().now())
        self._keeper.note(f"{why}: {decision.reason}")
        if decision.restart:
            self._loop.call_later(decision.after_s, self._start_again)
            return
        self._gave_up = f"the nursery keeps dying: {decision.reason}; see {self._log_path}"
        for process_id in list(self._open):
            self._answered(process_id)
            self._keeper.fork_failed(process_id, self._gave_up)

    def _start_again(self) -> None:
        if not self._closed:
            self.start()

    def _end(self) -> subprocess.Popen[bytes] | None:
        """SIGKILL the nursery, if there is one, and reap it, if the kernel lets it end."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_END_LIMIT_S)
        # Not before: to a nursery that lives it would mean the agent's end, and its workers'.
        if self._socket is not None:
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
            self._socket.close()
            self._socket = None
        self._is_ready = False
        self._outgoing.clear()
        return process


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)
