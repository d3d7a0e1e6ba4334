"""Keeps the quorum service of a run alive: starts it, watches it, starts it again.

The service is a process of its own that must outlive any replica; members keep training while it
is away (Q-6).  Its disk is the run folder's ``quorum/``, so that a new one goes on where the old
one ended.  Exits are heard from the kernel; a service that lives and does not answer (stopped,
say) is found by greeting it, and killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Sequence
from typing import BinaryIO

from danaus.actor import procfs
from danaus.actor.log_tail import tail
from danaus.actor.restart import RestartBudget
from danaus.app.events import SERVICE, Event
from danaus.app.found_child import Child, FoundChild
from danaus.app.run_folder import RunFolder
from danaus.app.run_hosts import bind_of
from danaus.app.settings import RunConfig
from danaus.core.errors import AddressRefused, DanausError, RestartsExhausted
from danaus.core.journal import Journal
from danaus.core.lifeline import open_lifeline
from danaus.wire.address import Address, advertised
from danaus.wire.routes import ReservedPort
from danaus.wire.secret import Secret
from danaus.wire.session import open_session

_GREET_EVERY_S = 1.0
_GREET_LIMIT_S = 3.0
_START_LIMIT_S = 10.0
_MAX_START_LIMIT_S = 160.0
_RESTART_AFTER_S = 0.05
_RESTART_LIMIT_S = 2.0
_SHORT_LIFE_S = 2.0


class ServiceKeeper:
    """Run the quorum service of one run folder.

    Args:
        folder: The run's folder, held by this process.
        settings: The run's limits.
        journal: Where starts and exits are written.
        resume: Let the first service go back to a checkpoint although a ledger exists (H-5).
        heal: Let replicas whose bits differ heal; else a divergence ends the run (Q-9).
    """

    def __init__(
        self,
        folder: RunFolder,
        settings: RunConfig,
        journal: Journal,
        *,
        resume: bool,
        heal: bool,
    ) -> None:
        self._folder, self._settings, self._journal = folder, settings, journal
        self._resume, self._heal = resume, heal
        self._process: Child | None = None
        self._found: FoundChild | None = None
        self._stopping = asyncio.Event()
        self._attempt = 0
        self._budget = RestartBudget(settings.restart.policy())
        self._port: ReservedPort | None = None
        self._address = Address.unix(folder.sockets() / "quorum")
        self._lifeline: tuple[int, int] | None = None
        self._hold_restart_s = 0.0
        self._start_limit_s = _START_LIMIT_S
        self._adopts = False

    @property
    def pid(self) -> int | None:
        """The living service's process id."""
        process = self._process
        return process.pid if process is not None and process.returncode is None else None

    def hold(self, seconds: float) -> None:
        """Wait for so much longer before the next restart; to see what goes on without."""
        self._hold_restart_s = seconds

    def reserve(self) -> None:
        """Take the port at which the service, and any that follows it, listens; see ``close``.

        Raises:
            AddressRefused: The hosts cannot be reached, or there is no such address here.
        """
        host = bind_of(self._settings)
        if host:
            self._port = ReservedPort(host)
            self._address = self._port.address

    def adopt(self) -> bool:
        """Go on with the service that an earlier controller has started, instead of ``reserve``.

        If it has died meanwhile another is started, at the same address: members know no other.

        Returns:
            Whether that can be: it lives here, or another can have its address.
        """
        known = self._folder.addresses()
        address = Address.parse(known.get("quorum", str(self._address)))
        self._found = FoundChild.find(known.get("quorum_pid"), known.get("quorum_started"))
        if self._found is None and address.scheme == "tcp":
            try:
                self._port = ReservedPort(address.host, address.port)
            except AddressRefused:  # of another machine, or somebody else's by now
                return False
        self._address = address
        self._adopts, self._resume, self._attempt = True, False, 1
        return True

    def keep_budget(self, budget: RestartBudget) -> None:
        """Count restarts by a budget that may have been drawn upon before."""
        self._budget = budget

    def _keep_port(self) -> None:
        """Reserve the port of an adopted service, which itself held it for as long as it lived."""
        if self._port is None and self._address.scheme == "tcp":
            with contextlib.suppress(AddressRefused):  # somebody else was quicker: it will be said
                self._port = ReservedPort(self._address.host, self._address.port)

    def close(self) -> None:
        """Give the port back."""
        if self._port is not None:
            self._port.close()

    def address_for(self, peer: Address) -> str:
        """Return at which addresses ``peer`` dials the service, and what stands by for it (W-4)."""
        return ",".join((str(advertised(self._address, peer)), *self._settings.quorum.standby))

    async def run(self) -> None:
        """Keep the service running until ``stop``; ends when it has ended.

        Raises:
            RestartsExhausted: It ends too often.
        """
        if not self._adopts:
            self._end_leftover()
        if self._settings.detached:
            await self._keep()
            return
        # With this pipe's end, that is, with this process, the service is killed (P-4).
        self._lifeline = open_lifeline()
        try:
            await self._keep()
        finally:
            for fd in self._lifeline:
                os.close(fd)
            self._lifeline = None

    def _end_leftover(self) -> None:
        """Kill the service that an earlier, detached part of the run has left."""
        known = self._folder.addresses()
        pid, started = known.get("quorum_pid"), known.get("quorum_started")
        if isinstance(pid, int) and isinstance(started, int):
            procfs.kill_exactly(pid, started)

    async def _keep(self) -> None:
        pause_s = _RESTART_AFTER_S
        while not self._stopping.is_set():
            began = time.monotonic()
            how = await self._see_through()
            # One that cannot even begin (a full disk, say) is tried again less and less often.
            short_lived = time.monotonic() - began < _SHORT_LIFE_S
            pause_s = min(2 * pause_s, _RESTART_LIMIT_S) if short_lived else _RESTART_AFTER_S
            if not self._stopping.is_set():
                self._count_failure(how)
                away_s = pause_s + self._hold_restart_s
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stopping.wait(), away_s)
                self._hold_restart_s = 0.0

    async def _see_through(self) -> str:
        """Start the service, or take the one that was found, and see it to its end.

        Returns:
            How it ended.
        """
        found, self._found = self._found, None
        try:
            self._process = process = found or await self._start()
        except OSError as error:  # no memory, no descriptor: there may be some again
            how = f"it cannot be started: {error}"
            self._journal.record(Event.SERVICE_EXITED, reason=how, expected=False)
            return how
        try:
            async with asyncio.TaskGroup() as tasks:
                greeter = tasks.create_task(self._greet(process))
                if self._stopping.is_set():  # ``stop`` found no process: this was on its way
                    _kill(process)
                code = await process.wait()
                greeter.cancel()
        finally:
            _kill(process)
            await process.wait()
        if found is not None:
            found.close()
        how = (
            procfs.how_ended(code) if code is not None else "it was adopted: how is not known here"
        )
        self._journal.record(
            Event.SERVICE_EXITED,
            pid=process.pid,
            signal=_signal_name(code),
            reason=how,
            expected=self._stopping.is_set(),
        )
        self._resume = False
        self._attempt += 1
        return how

    async def stop(self) -> None:
        """Ask the service to end; kill it if it does not."""
        self._stopping.set()
        process = self._process
        if process is None or process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
            try:
                await asyncio.wait_for(process.wait(), self._settings.grace_s)
            except TimeoutError:
                process.kill()

    def _count_failure(self, how: str) -> None:
        if self._budget.decide((0,), 1, time.monotonic()).restart:
            return
        policy = self._budget.policy
        written = tail(self._folder.log_path("quorum"), 1)
        raise RestartsExhausted(
            name=SERVICE,
            restarts=policy.intensity,
            period_s=policy.period_s,
            last=": ".join((how, *written)),
        )

    async def _start(self) -> asyncio.subprocess.Process:
        self._keep_port()
        with self._open_log() as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *self._command(),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=self._lifeline[:1] if self._lifeline is not None else (),
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        stat = procfs.read_stat(process.pid)
        try:
            self._folder.save_addresses(
                quorum=str(self._address),
                quorum_pid=process.pid,
                quorum_started=stat.started if stat is not None else 0,
            )
        except OSError:
            _kill(process)  # a later controller would not find it
            await process.wait()
            raise
        self._journal.record(
            Event.SERVICE_RESTARTED if self._attempt else Event.SERVICE_STARTED,
            pid=process.pid,
            address=str(self._address),
            attempt=self._attempt,
        )
        return process

    def _open_log(self) -> BinaryIO:
        return self._folder.log_path("quorum").open("ab")

    def _command(self) -> Sequence[str]:
        limits = self._settings.quorum
        command = [
            "-m",
            "danaus.quorum.service",
            "--folder",
            str(self._folder.quorum),
            "--address",
            str(self._address),
            "--secret",
            str(self._folder.secret_path),
            "--journal",
            str(self._folder.journal_path),
            "--expected-replicas",
            str(self._settings.replicas),
            "--min-replicas",
            str(limits.min_replicas),
            "--join-limit-s",
            str(limits.join_limit_s),
            "--heartbeat-limit-s",
            str(limits.heartbeat_limit_s),
            "--fence-limit-s",
            str(limits.fence_limit_s),
            "--hold-limit-s",
            str(limits.hold_limit_s),
            "--hold-share",
            str(limits.hold_share),
        ]
        if self._settings.hang_limit_s is not None:
            command += ["--hang-limit-s", str(self._settings.hang_limit_s)]
        if self._lifeline is None:
            command += ["--detached"]
        else:
            command += ["--lifeline-fd", str(self._lifeline[0])]
        command += ["--resume"] if self._resume else []
        command += ["--lease", "file"] if limits.standby else []
        command += ["--replace-stragglers"] if self._settings.straggler.replace else []
        return command if self._heal else [*command, "--no-heal"]

    async def _greet(self, process: Child) -> None:
        """Kill a service that lives and does not answer; training has gone on meanwhile.

        One that has never answered may have been too slow to start on a machine that does much
        else: the next is given twice the time.
        """
        secret = Secret.load(self._folder.secret_path)
        address = advertised(self._address, Address.tcp("127.0.0.1", 9))
        limit_s, starts = self._start_limit_s, True
        while True:
            try:
                session = await open_session(address, secret, open_limit_s=limit_s)
            except DanausError as error:
                self._journal.record(Event.SERVICE_SILENT, pid=process.pid, reason=str(error))
                _kill(process)
                if starts:
                    self._start_limit_s = min(2 * limit_s, _MAX_START_LIMIT_S)
                return
            except OSError:  # of this process (no descriptor left): it tells nothing of the service
                await asyncio.sleep(_GREET_EVERY_S)
                continue
            await session.close()
            limit_s, starts = _GREET_LIMIT_S, False
            self._start_limit_s = _START_LIMIT_S
            await asyncio.sleep(_GREET_EVERY_S)


def _kill(process: Child) -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.kill()


def _signal_name(code: int | None) -> str | None:
    return signal.Signals(-code).name if code is not None and code < 0 else None
