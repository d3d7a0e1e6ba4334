"""The host agent: one per host; starts, watches, stops and reaps its workers.

``python -m danaus.actor.agent SETTINGS.json``.  Owners of processes, the processes themselves and
watchers open authenticated sessions with it; see ``agent_messages`` and ``wire.lifecycle``.

Invariants:
    P-1: a worker's end reaches its owner and its watchers at once, with status and last lines.
    P-4: with the agent its nursery and all workers die, by a lifeline; an agent that is not
        detached dies with its controller, likewise.
    An agent begins by ending what an earlier one of the same folder has left.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
import time
from pathlib import Path

import msgspec

from danaus.actor import agent_messages as talk
from danaus.actor import nursery_messages, procfs
from danaus.actor.agent_breakpoints import Breakpoints
from danaus.actor.agent_files import keep_address, keep_bootstrap, new_block, remove_leftovers
from danaus.actor.agent_owners import Owners
from danaus.actor.agent_reports import AgentSession, Reports
from danaus.actor.agent_workers import Worker, WorkerTable
from danaus.actor.binding import places, read_topology
from danaus.actor.debug_messages import ToAgentOfBreakpoints
from danaus.actor.log_tail import LogFollower, log_path
from danaus.actor.nursery_client import NurseryClient
from danaus.actor.pid_registry import PidRegistry
from danaus.actor.unattended import Attendance
from danaus.core.errors import ChannelClosed, ConfigError, DanausError
from danaus.core.lifeline import arm_lifeline, end_watched, open_lifeline
from danaus.wire.address import Address
from danaus.wire.lifecycle import (
    KillProcess,
    ProcessExited,
    WatchProcess,
)
from danaus.wire.owned_tasks import OwnedTasks
from danaus.wire.secret import Secret
from danaus.wire.session import Session, serve_sessions

_LOST_LIMIT_S = 10.0
_LEFTOVERS_LIMIT_S = 5.0
_LOCATE_PATIENCE_S = 1.0
_PR_SET_CHILD_SUBREAPER = 36


class HostAgent:
    """The agent's process.

    Args:
        settings: What it was started with.
    """

    def __init__(self, settings: talk.AgentSettings) -> None:
        self._settings = settings
        self._secret = Secret.load(settings.secret_path)
        self._registry = PidRegistry(settings.folder)
        self._tasks = OwnedTasks(f"agent of {settings.host}")
        self._workers = WorkerTable(self._registry, self.note)
        self._sessions: set[AgentSession] = set()
        self._ending = asyncio.Event()
        self._lifeline_read, self._lifeline_write = open_lifeline()
        self._address = settings.address
        self._num_started = 0
        self._leaving = ""
        self._topology = read_topology()
        self._owners = Owners(self._workers, self._secret, self._tasks)
        self._breakpoints = Breakpoints(self._workers, self.note)
        self._attendance = Attendance(
            self._workers, self._tasks, end=self._ending.set, note=self.note
        )

    def note(self, text: str) -> None:
        """Write a line to the agent's log, if there is room for it."""
        stamp = time.strftime("%H:%M:%S")
        with contextlib.suppress(OSError):  # a full disk must not end a host
            sys.stdout.write(f"{stamp} agent {self._settings.host}: {text}\n")
            sys.stdout.flush()

    async def run(self) -> None:
        """Serve until told to end or, unless detached, until the controller is gone."""
        settings = self._settings
        left = self._registry.clear_leftovers(_LEFTOVERS_LIMIT_S)
        if left:
            self.note(f"ended what an earlier agent left: {', '.join(left)}")
        remove_leftovers(settings)
        _note_process(self._registry, "agent", os.getpid())
        self._start_nursery()
        server = await serve_sessions(
            Address.parse(settings.address),
            self._secret,
            self._on_session,
            lost_limit_s=_LOST_LIMIT_S,
        )
        self._address = self._owners.own_address = str(server.address)
        self._say_ready()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._asked_to_end)
        with end_watched(settings.controller_pid, self._controller_gone):
            ticking = self._tasks.start(Reports(self._workers, self._sessions).run(), "reports")
            await self._ending.wait()
            ticking.cancel()
        self._workers.kill_all()
        if self._workers.nursery is not None:
            self._workers.nursery.close()
        await server.close()
        await self._tasks.close()

    def _start_nursery(self) -> None:
        settings = self._settings
        told = nursery_messages.NurserySettings(
            settings.preload,
            settings.sys_path,
            settings.secret_path,
            self._lifeline_read,
            settings.spawns,
        )
        path = log_path(settings.run_dir, f"nursery-{settings.host}")
        self._workers.nursery = NurseryClient(
            told,
            self._workers,
            log_path=path,
            environment=_nursery_environment(),
            registered=lambda pid, started: self._registry.add("nursery", pid, started),
        )
        self._workers.nursery.start()

    def _say_ready(self) -> None:
        keep_address(self._settings.folder, self._address)
        if self._settings.ready_fd >= 0:
            os.write(self._settings.ready_fd, self._address.encode() + b"\n")
            os.close(self._settings.ready_fd)

    def _controller_gone(self) -> None:
        if self._settings.detached:
            self._attendance.nobody_there()
        else:
            self._ending.set()

    def _asked_to_end(self) -> None:
        """Have all workers end first; asked again, end at once."""
        if self._leaving:
            self._ending.set()
            return
        self._leaving = "its agent was asked to end (SIGTERM)"
        self.note(f"leaving: {self._leaving}; asking {len(list(self._workers))} workers to end")
        for peer in self._sessions:
            if peer.greeted:
                peer.tell(talk.HostLeaving(self._leaving))
        self._tasks.start(self._leave(), "leaving")

    async def _leave(self) -> None:
        await self._workers.ask_to_end()
        self._ending.set()

    # -- sessions ------------------------------------------------------------------------------

    async def _on_session(self, session: Session) -> None:
        peer = AgentSession(session)
        self._sessions.add(peer)
        try:
            async for parts in session:
                self._obey(peer, talk.TO_AGENT.decode(parts[0], session.peer))
        except ChannelClosed:
            pass
        except DanausError as error:
            self.note(f"session of {session.peer} ended: {error}")
        finally:
            self._forget(peer)
            await session.close()

    def _forget(self, peer: AgentSession) -> None:
        self._sessions.discard(peer)
        self._attendance.left(peer)
        self._breakpoints.forget(peer)
        for worker in self._workers:
            worker.watchers.discard(peer)
            worker.log_readers.discard(peer)
            if worker.session is peer:
                worker.session = None

    def _obey(self, peer: AgentSession, message: talk.ToAgent) -> None:
        match message:
            case talk.Greet(generation):
                peer.greeted = True
                peer.session.keep_for(self._settings.lost_limit_s)
                peer.tell(talk.Welcome(self._settings.host, os.getpid()))
                self._attendance.greeted(peer, generation)
            case _ if not self._attendance.obeys(peer):
                self._attendance.refuse(peer)
            case talk.ListOwned():
                owned = (w.spec.process_id for w in self._workers if not w.owner_agent)
                peer.tell(talk.Owned(tuple(owned)))
            case talk.AdoptProcesses():
                self._workers.adopt(message.process_ids, message.owner, peer)
                if self._leaving:
                    peer.tell(talk.HostLeaving(self._leaving))
            case talk.StartProcesses():
                self._start_processes(peer, message)
            case talk.WorkerReady():
                self._workers.ready(message.process_id, message.address, peer)
            case WatchProcess():
                self._watch(peer, message.process_id)
            case talk.LocateProcess():
                self._locate(peer, message.process_id, patient=True)
            case _:
                self._obey_ending(peer, message)

    def _obey_ending(self, peer: AgentSession, message: talk.ToAgent) -> None:
        match message:
            case KillProcess():
                self._kill(peer, message)
            case talk.StopProcesses():
                stopping = (message.process_ids, message.grace_s, message.reason)
                self._tasks.start(self._workers.stop_all(*stopping), "stopping workers")
            case talk.ForwardLogs():
                self._forward(peer, message)
            case talk.EndUnattended():
                self._attendance.nobody_there()
            case talk.TakeStacks():
                self._tasks.start(self._take_stacks(peer), "taking stacks")
            case talk.ShutDown():
                self._tasks.start(self._shut_down(message), "shutting down")
            case _ if isinstance(message, ToAgentOfBreakpoints):
                self._breakpoints.obey(peer, message)

    def _watch(self, peer: AgentSession, process_id: str) -> None:
        worker = self._workers.get(process_id)
        if worker is None:
            peer.tell(self._workers.exit_of(process_id))
        else:
            worker.watchers.add(peer)
            peer.watching.add(process_id)

    def _locate(self, peer: AgentSession, process_id: str, *, patient: bool) -> None:
        worker = self._workers.get(process_id)
        if worker is not None:
            worker.watchers.add(peer)
            if worker.address:
                peer.tell(talk.ProcessReady(process_id, worker.pid, worker.address))
        elif patient and not self._workers.has_had(process_id):
            # A reference may travel faster than the order to start what it refers to.
            asyncio.get_running_loop().call_later(
                _LOCATE_PATIENCE_S, lambda: self._locate(peer, process_id, patient=False)
            )
        else:
            peer.tell(self._workers.exit_of(process_id))

    def _forward(self, peer: AgentSession, message: talk.ForwardLogs) -> None:
        for process_id in message.process_ids:
            worker = self._workers.get(process_id)
            if worker is not None and message.on:
                if not worker.log_readers:
                    worker.log = LogFollower(worker.spec.log_path, from_tail=True)
                worker.log_readers.add(peer)
            elif worker is not None:
                worker.log_readers.discard(peer)

    # -- beginnings ----------------------------------------------------------------------------

    def _start_processes(self, peer: AgentSession, message: talk.StartProcesses) -> None:
        for process in message.processes:
            why = f"the host leaves: {self._leaving}" if self._leaving else ""
            if why:
                pass
            elif self._workers.has_had(process.process_id):
                why = "the name was used before on this host"
            else:
                try:
                    self._workers.add(self._new_worker(peer, message, process))
                except (OSError, ConfigError) as error:  # a full disk, no such CPU
                    why = f"could not be started: {error}"
            if why:
                peer.tell(ProcessExited(process.process_id, reason=why))
        if message.owner.agent:
            self._owners.watch(message.owner.process_id, message.owner.agent)

    def _new_worker(
        self, peer: AgentSession, message: talk.StartProcesses, process: talk.NewProcess
    ) -> Worker:
        settings = self._settings
        self._num_started += 1
        name = f"w{os.getpid()}-{self._num_started}"
        place = places(self._topology, message.binding, process.of)[process.number]
        block, position = new_block(str(Path(settings.folder) / f"{name}.position"))
        log = log_path(settings.run_dir, process.process_id)
        spec = nursery_messages.WorkerSpec(
            process_id=process.process_id,
            mesh_id=message.mesh_id,
            rank=process.rank,
            host=settings.host,
            run_dir=settings.run_dir,
            log_path=log,
            position_path=position,
            bind=self._bind(name),
            agent_address=self._address,
            sockets=settings.sockets,
            lost_limit_s=settings.lost_limit_s,
            env=process.env,
            place=place,
            bootstrap_path=keep_bootstrap(settings.folder, name, message.bootstrap),
            workspace=message.workspace,
            root_id=message.owner.root_id,
            root_address=message.owner.root_address,
        )
        return Worker(
            spec=spec,
            owner=message.owner.process_id,
            owner_agent=message.owner.agent,
            owner_session=peer,
            block=block,
            log=LogFollower(log),
        )

    def _bind(self, name: str) -> str:
        own = Address.parse(self._address)
        if own.scheme == "unix":
            return str(Address.unix(f"{self._settings.sockets}/{self._settings.host}-{name}"))
        return str(Address.tcp(own.host, 0))

    # -- endings -------------------------------------------------------------------------------

    def _kill(self, peer: AgentSession, message: KillProcess) -> None:
        worker = self._workers.get(message.process_id)
        if worker is None:
            peer.tell(self._workers.exit_of(message.process_id))
            return
        worker.watchers.add(peer)
        self.note(f"killing {message.process_id}: {message.reason}")
        if message.save_stacks:
            self._tasks.start(self._workers.fence(worker, message.reason), "fencing")
        else:
            self._workers.kill(worker, message.reason)

    async def _take_stacks(self, peer: AgentSession) -> None:
        peer.tell(talk.StacksTaken(await self._workers.stacks()))

    async def _shut_down(self, message: talk.ShutDown) -> None:
        everyone = tuple(worker.spec.process_id for worker in self._workers)
        await self._workers.stop_all(everyone, message.grace_s, message.reason)
        self._ending.set()


def _note_process(registry: PidRegistry, name: str, pid: int) -> None:
    stat = procfs.read_stat(pid)
    if stat is not None:
        registry.add(name, pid, stat.started)


def _nursery_environment() -> dict[str, str]:
    environment = dict(os.environ)
    # A pool of threads started by an import would make every fork unsafe.
    environment.setdefault("OPENBLAS_NUM_THREADS", "1")
    return environment


def _become_subreaper() -> None:
    """Be the parent of what a dead nursery leaves; where no process can, its workers are init's."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "prctl"):
        return
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "cannot become a child subreaper")


def main() -> None:
    """Run a host agent with the settings in the file that the only argument names."""
    settings = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=talk.AgentSettings)
    if settings.lifeline_fd >= 0 and not settings.detached:
        arm_lifeline(settings.lifeline_fd)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    _become_subreaper()

    async def serve() -> None:
        await HostAgent(settings).run()

    asyncio.run(serve())


if __name__ == "__main__":
    main()
