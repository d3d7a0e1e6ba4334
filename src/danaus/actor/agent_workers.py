"""The workers of one host: what its agent knows of them, and how they begin and end.

A worker's end is seen through its descriptor, whoever is its parent (P-1).  Its status comes from
the kernel's own record of the zombie, from the nursery's report, or, where the agent has adopted
the worker of a dead nursery, from ``waitpid``.
"""

from __future__ import annotations

import asyncio
import collections
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol

from danaus.actor import nursery_messages as talk
from danaus.actor import procfs
from danaus.actor.agent_messages import (
    HANG,
    NOT_HERE,
    OUT_OF_MEMORY,
    FromAgent,
    LogLines,
    ProcessReady,
    ProcessStacks,
    ProcessStarted,
    StopWorker,
)
from danaus.actor.exits import stop_words
from danaus.actor.log_tail import LogFollower, tail
from danaus.actor.nursery_client import NurseryClient
from danaus.actor.pid_registry import PidRegistry
from danaus.actor.stacks import take_stacks, write_stacks
from danaus.core.process_descriptor import open_process, signal_process
from danaus.wire.lifecycle import ProcessExited
from danaus.wire.position import PositionBlock

_REPORT_S = 0.02
_REPORT_LIMIT_S = 0.5
_TERMINATE_S = 1.0
_START_LIMIT_S = 60.0
_BOOTSTRAP_LIMIT_S = 600.0  # users' code, which may compile or fetch something
_REMEMBERED = 1000


class Listener(Protocol):
    """A session to which the agent can say something."""

    def tell(self, message: FromAgent) -> None:
        """Send; a session that is gone swallows it."""


@dataclass(eq=False)
class Worker:
    """One worker process."""

    spec: talk.WorkerSpec
    owner: str
    owner_agent: str
    owner_session: Listener
    block: PositionBlock
    log: LogFollower
    pid: int = 0
    started: int = 0
    descriptor: int = -1
    address: str = ""
    session: Listener | None = None
    is_killed: bool = False
    kill_reason: str = ""
    stop_reason: str = ""
    watchers: set[Listener] = field(default_factory=set)
    log_readers: set[Listener] = field(default_factory=set)
    moved: tuple[int, float] = (0, 0.0)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    timer: asyncio.TimerHandle | None = None


class WorkerTable:
    """All workers that this agent has started and that have not ended, and the last that have.

    Args:
        registry: Where pids are noted.
        note: Writes a line to the agent's log.
    """

    def __init__(self, registry: PidRegistry, note: Callable[[str], None]) -> None:
        self.note = note
        self._registry = registry
        self._loop = asyncio.get_running_loop()
        self._workers: dict[str, Worker] = {}
        self._exits: collections.OrderedDict[str, ProcessExited] = collections.OrderedDict()
        self.nursery: NurseryClient | None = None
        self._oom_kills = (procfs.num_oom_kills(),) * 2

    def __iter__(self) -> collections.abc.Iterator[Worker]:
        return iter(list(self._workers.values()))

    def get(self, process_id: str) -> Worker | None:
        """Return a worker that has not ended."""
        return self._workers.get(process_id)

    def exit_of(self, process_id: str) -> ProcessExited:
        """Return what is remembered of a worker that is not here (any more)."""
        return self._exits.get(process_id) or ProcessExited(process_id, reason=NOT_HERE)

    def has_had(self, process_id: str) -> bool:
        """Tell whether a process of this name lives or is remembered."""
        return process_id in self._workers or process_id in self._exits

    # -- beginnings ----------------------------------------------------------------------------

    def add(self, worker: Worker) -> None:
        """Ask the nursery for a worker."""
        if self.nursery is None:
            raise RuntimeError("no nursery yet")
        process_id = worker.spec.process_id
        self._workers[process_id] = worker
        limit_s = _BOOTSTRAP_LIMIT_S if worker.spec.bootstrap_path else _START_LIMIT_S
        worker.timer = self._loop.call_later(limit_s, self._late, process_id, limit_s)
        self.nursery.fork(worker.spec)

    def forked(self, message: talk.Forked) -> None:
        """A worker exists (said by the nursery)."""
        worker = self._workers.get(message.process_id)
        try:
            descriptor = open_process(message.pid)
        except OSError:
            descriptor = -1  # ended already: the report follows
        if worker is None:
            if descriptor >= 0:  # asked for and withdrawn
                signal_process(descriptor, message.pid, signal.SIGKILL)
                os.close(descriptor)
            return
        worker.pid, worker.started, worker.descriptor = message.pid, message.started, descriptor
        self._registry.add(message.process_id, message.pid, message.started)
        if descriptor >= 0:
            self._loop.add_reader(descriptor, self._has_ended, worker)
        if worker.is_killed:  # before its pid was known
            self.send_signal(worker, signal.SIGKILL)
        worker.owner_session.tell(
            ProcessStarted(message.process_id, message.pid, worker.spec.log_path)
        )

    def fork_failed(self, process_id: str, why: str) -> None:
        """There will be no such worker (said by the nursery)."""
        worker = self._workers.get(process_id)
        if worker is not None:
            self._end(worker, None, f"could not be started: {why}")

    def ready(self, process_id: str, address: str, session: Listener) -> None:
        """A worker listens."""
        worker = self._workers.get(process_id)
        if worker is None:
            return
        worker.address, worker.session = address, session
        if worker.timer is not None:
            worker.timer.cancel()
        message = ProcessReady(process_id, worker.pid, address)
        for listener in {worker.owner_session, *worker.watchers}:
            listener.tell(message)

    def adopt(self, process_ids: tuple[str, ...], owner: str, session: Listener) -> None:
        """Give workers another owner; it is told of each what the one before was."""
        for process_id in process_ids:
            worker = self._workers.get(process_id)
            if worker is None:
                session.tell(self.exit_of(process_id))
                continue
            worker.owner, worker.owner_session = owner, session
            if worker.pid:
                session.tell(ProcessStarted(process_id, worker.pid, worker.spec.log_path))
            if worker.address:
                session.tell(ProcessReady(process_id, worker.pid, worker.address))

    def _late(self, process_id: str, limit_s: float) -> None:
        worker = self._workers.get(process_id)
        if worker is not None:
            self.kill(worker, f"did not come up within {limit_s:.0f} s")

    # -- endings -------------------------------------------------------------------------------

    def known_pids(self) -> set[int]:
        """Return the pids of all workers that have not ended."""
        return {worker.pid for worker in self._workers.values() if worker.pid}

    def reaped(self, message: talk.Reaped) -> None:
        """A worker has ended (said by the nursery)."""
        worker = self._workers.get(message.process_id)
        if worker is not None and worker.pid == message.pid:
            self._end(worker, message.wait_status, "")

    def _has_ended(self, worker: Worker) -> None:
        self._loop.remove_reader(worker.descriptor)
        stat = procfs.read_stat(worker.pid)
        if stat is not None and stat.started != worker.started:
            stat = None  # another one's
        if stat is not None and stat.parent == os.getpid():
            self._end(worker, _reap_adopted(worker.pid), "")
        elif stat is None or stat.wait_status is None:
            # The nursery was quicker, or nobody else is told: its report is on the way, unless it
            # has died with it.
            self._loop.call_later(_REPORT_LIMIT_S, self._end, worker, None, "status not reported")
        else:
            # The nursery's report is exact; it may be stopped, though, or about to die.
            self._loop.call_later(_REPORT_S, self._end, worker, stat.wait_status, "")

    def _end(self, worker: Worker, wait_status: int | None, why: str) -> None:
        process_id = worker.spec.process_id
        if self._workers.pop(process_id, None) is None:
            return
        if worker.timer is not None:
            worker.timer.cancel()
        if worker.descriptor >= 0:
            self._loop.remove_reader(worker.descriptor)
            os.close(worker.descriptor)
        exit_code, signal_name = procfs.split_status(wait_status)
        lines = tail(worker.spec.log_path)
        reason = worker.kill_reason or worker.stop_reason or why or self._memory_words(signal_name)
        message = ProcessExited(process_id, exit_code, signal_name, lines, reason)
        self._exits[process_id] = message
        while len(self._exits) > _REMEMBERED:
            self._exits.popitem(last=False)
        self.tell_lines(worker)
        for listener in {worker.owner_session, *worker.watchers}:
            listener.tell(message)
        worker.ended.set()
        self._tidy(worker)

    def count_oom_kills(self) -> None:
        """Note what the kernel counts, now and then, so that an increase can be told."""
        self._oom_kills = (self._oom_kills[1], procfs.num_oom_kills())

    def _memory_words(self, signal_name: str | None) -> str:
        """Return why a SIGKILL came that nobody here has sent, if it was for want of memory."""
        if signal_name != signal.SIGKILL.name or procfs.num_oom_kills() == self._oom_kills[0]:
            return ""
        return f"{OUT_OF_MEMORY}, most likely: the kernel has just ended a process for want of it"

    def _tidy(self, worker: Worker) -> None:
        self._registry.drop(worker.spec.process_id)
        leftovers = [] if worker.block.path else [worker.spec.position_path]
        if worker.spec.bootstrap_path:
            leftovers.append(worker.spec.bootstrap_path)
        worker.block.close()
        if worker.address.startswith("unix:"):
            leftovers.append(worker.address.removeprefix("unix:"))
        for path in leftovers:
            Path(path).unlink(missing_ok=True)

    def tell_lines(self, worker: Worker) -> None:
        """Send what a worker has written since the last time to those who asked for it."""
        lines = worker.log.lines() if worker.log_readers else ()
        if lines:
            for listener in worker.log_readers:
                listener.tell(LogLines(worker.spec.process_id, lines))

    def send_signal(self, worker: Worker, number: signal.Signals) -> None:
        """Send a signal to a worker; one that has ended is left alone."""
        if worker.descriptor < 0:
            return
        try:
            signal_process(worker.descriptor, worker.pid, number)
        except ProcessLookupError:
            pass

    def kill(self, worker: Worker, reason: str) -> None:
        """SIGKILL a worker now; its end is reported with ``reason``."""
        worker.is_killed, worker.kill_reason = True, worker.kill_reason or reason
        if worker.pid:
            self.send_signal(worker, signal.SIGKILL)
        elif self.nursery is not None and self.nursery.withdraw(worker.spec.process_id):
            self._end(worker, None, reason)

    async def fence(self, worker: Worker, reason: str) -> None:
        """Save a stalled worker's stacks as far as it still writes them, then kill it (P-3)."""
        if not reason.lower().startswith(HANG):
            reason = f"{HANG}: {reason}"
        if why := await write_stacks(worker, lambda: self.ask_for_stacks(worker)):
            _append(worker.spec.log_path, f"danaus: no stacks: {why}")
        self.kill(worker, reason)

    def ask_for_stacks(self, worker: Worker) -> None:
        """Have a worker write all its stacks to its log."""
        self.send_signal(worker, talk.STACKS_SIGNAL)

    async def stacks(self) -> tuple[ProcessStacks, ...]:
        """Return what every worker is at; all are asked side by side."""
        asked = [take_stacks(each, partial(self.ask_for_stacks, each)) for each in self]
        return tuple(await asyncio.gather(*asked))

    async def stop(self, worker: Worker, grace_s: float, reason: str = "") -> None:
        """Ask, wait ``grace_s``, terminate, wait, kill (P-5); its end is reported with a reason."""
        if reason:
            worker.stop_reason = worker.stop_reason or stop_words(reason)
        if worker.session is not None:
            worker.session.tell(StopWorker(reason))
            if await _ends_within(worker, grace_s):
                return
        if worker.pid:
            self.send_signal(worker, signal.SIGTERM)
            if await _ends_within(worker, _TERMINATE_S):
                return
        self.kill(worker, "")
        await _ends_within(worker, _TERMINATE_S)

    async def ask_to_end(self) -> None:
        """Send SIGTERM to every worker; return once all have ended, those that start as well."""
        workers = list(self)
        for worker in workers:
            if worker.pid:
                self.send_signal(worker, signal.SIGTERM)
            else:
                self.kill(worker, "its host leaves")
        for worker in workers:
            await worker.ended.wait()

    async def stop_all(
        self, process_ids: tuple[str, ...], grace_s: float, reason: str = ""
    ) -> None:
        """Stop these workers side by side."""
        wanted = set(process_ids)
        async with asyncio.TaskGroup() as group:
            for worker in self:
                if worker.spec.process_id in wanted:
                    group.create_task(self.stop(worker, grace_s, reason))

    def kill_all(self) -> None:
        """SIGKILL whatever lives."""
        for worker in self:
            self.kill(worker, "its host agent ended")

    def adopt_strays(self) -> None:
        """Reap what was orphaned below this agent and has ended."""
        known = self.known_pids() | {self.nursery.pid if self.nursery else 0}
        for pid in procfs.children_of(os.getpid()):
            stat = procfs.read_stat(pid)
            if pid not in known and stat is not None and stat.is_zombie:
                _reap_adopted(pid)


async def _ends_within(worker: Worker, limit_s: float) -> bool:
    try:
        async with asyncio.timeout(limit_s):
            await worker.ended.wait()
    except TimeoutError:
        return False
    return True


def _reap_adopted(pid: int) -> int | None:
    """Take the status of a child that has ended, and end what it leaves in its group."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except OSError:
        pass
    try:
        reaped, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return None
    return status if reaped == pid else None


def _append(path: str, line: str) -> None:
    try:
        with Path(path).open("a") as file:
            file.write(line + "\n")
    except OSError:
        pass
