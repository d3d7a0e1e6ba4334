"""One process's part in the actor system: its connections, its actors, what it owns.

There is one ``Runtime`` per process.  Everything in it happens on the connections' loop, a thread
that never runs users' code; other threads hand over by ``io.post``.  Only messages for actors that
live here are handed to them, and answers to who waits for them, by whichever thread has read them.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import itertools
import logging
import os
import secrets
import sys
import threading
from collections.abc import Callable
from typing import Any

from danaus.actor import agent_messages as talk
from danaus.actor.cell import ActorCell
from danaus.actor.connections import Connections
from danaus.actor.contexts import Context, ProcessInfo, current
from danaus.actor.exits import fault_of_exit
from danaus.actor.failure import Fault, MeshFailure
from danaus.actor.fault_hook import call_fault_hook, end_program, end_replaced
from danaus.actor.hosting import Hosting
from danaus.actor.identity import HostRef, ProcessRef
from danaus.actor.links import Deliveries, Parts, Peer
from danaus.actor.log_window import LogWindow, print_lines
from danaus.actor.loop_thread import LoopThread
from danaus.actor.ordering import Numbering
from danaus.actor.owned import OwnedActors, OwnedProcs
from danaus.actor.ownership_record import OwnershipRecord
from danaus.actor.ports import PortTable
from danaus.actor.process_messages import (
    ActorFailed,
    FailurePassedUp,
    ProcessMessage,
    SetLogLevel,
    SpawnActor,
)
from danaus.actor.supervising import Supervisor
from danaus.actor.supervision_messages import (
    ActorKey,
    Event,
    MeshOwned,
    ProcessesGone,
    ProcessName,
)
from danaus.actor.wall_clock import WallClock
from danaus.core.clock import Clock
from danaus.core.errors import ChannelClosed, ConfigError
from danaus.wire.lifecycle import ProcessExited
from danaus.wire.reading import SharedReading

_LEAVE_LIMIT_S = 5.0
_log = logging.getLogger("danaus.actor")


class Runtime:
    """The runtime of this process.

    Args:
        info: Who this process is.
        on_stop: Called when the host agent asks a worker to end; None in a controller.
        on_exit: Called with the exit code when users' code calls ``sys.exit``.
    """

    def __init__(
        self,
        info: ProcessInfo,
        *,
        on_stop: Callable[[], None] | None = None,
        on_exit: Callable[[int], None] = end_program,
    ) -> None:
        self.info = info
        self.io = LoopThread("danaus-io", self._crashed)
        self.wall_clock: Clock = WallClock()
        self.numbering = Numbering()
        self.ports = PortTable()
        self.workspaces: dict[str, str] = {}  # that were brought to hosts, by their agents
        self.sending = threading.Lock()
        self.log_sink = print_lines
        self.on_host_news: list[Callable[[HostRef, str, bool], None]] = []
        """Told, on the connections' loop, why a host was asked to end, and (true) is lost."""
        self.on_replaced: Callable[[str], None] = end_replaced
        """Told, on the connections' loop, that another controller has taken this one's place."""
        self.on_owned: dict[HostRef, Callable[[frozenset[str]], None]] = {}
        """Told once, on the connections' loop, which processes of a controller live on a host."""
        self._client = Context(info)
        self._on_stop = on_stop
        self._stop_reason = ""
        self._on_exit = on_exit
        self._user_loop: LoopThread | None = None
        self._making = threading.Lock()
        self._mesh_numbers = itertools.count(1)
        self._claimed: set[ProcessName] = set()
        self._token = secrets.token_hex(3)
        self._hosting = Hosting(self)
        record = OwnershipRecord(self._replaced)
        self.supervisor = Supervisor(self._hosting, self._fault_hook, record)
        self.connections = Connections(self)

    # -- who I am ------------------------------------------------------------------------------

    @property
    def user_loop(self) -> LoopThread:
        """The loop for users' ``async`` code; started when it is first needed."""
        with self._making:
            if self._user_loop is None:
                self._user_loop = LoopThread("danaus-actors", self._crashed)
            return self._user_loop

    @property
    def idle_reading(self) -> SharedReading | None:
        """What an actor's idle thread does; nothing in a program, whose own threads go before."""
        return self.connections.reading if self.info.agent_address else None

    def context(self) -> Context:
        """Return who calls: an actor of this process, or its main program."""
        return current.get(None) or self._client

    def new_mesh_id(self, name: str) -> str:
        """Return a name for a mesh that no other mesh of the job has."""
        return f"{name}.{self._token}{os.getpid():x}.{next(self._mesh_numbers)}"

    # -- what is spawned from here -------------------------------------------------------------

    def claim(self, processes: tuple[ProcessName, ...]) -> None:
        """Take the names of processes that are about to be spawned from here, from any thread.

        What a process is told and what becomes of it goes by its name: no two share one.

        Raises:
            ConfigError: One was taken before.
        """
        with self._making:
            taken = self._claimed.intersection(processes)
            if taken:
                raise ConfigError(
                    what=f"process {min(taken).process_id} was started before from this program",
                    needed="a name of its own for each start",
                    to_do="choose another name for the mesh, or the next incarnation",
                )
            self._claimed.update(processes)

    def start_procs(
        self,
        owned: OwnedProcs,
        event: MeshOwned,
        *,
        hosts: tuple[HostRef, ...],
    ) -> None:
        """Have the agents of ``hosts`` (one for each rank) start the processes of a mesh."""
        try:
            agents = {host: self.connections.agent(host) for host in hosts}
        except ConfigError as stranger:  # a job that this process is not, or no longer, in
            owned.refuse(stranger)
            return
        owned.agents = tuple(agents[host] for host in hosts)
        self.supervisor.own(owned, event)
        owned.start(self.owner_of(hosts[0].job), self.workspaces)
        for host, agent in agents.items():
            if agent.lost_why:
                self.host_lost(host, agent.lost_why)

    def owner_of(self, job: str) -> talk.Owner:
        """Return who this process is, for those that it starts, and where their job began."""
        info = self.info
        root = (info.root_id, info.root_address)
        if not info.root_id:
            root = (info.process_id, self.connections.address_of(job))
        return talk.Owner(info.process_id, info.agent_address, *root)

    def start_actors(
        self,
        owned: OwnedActors,
        event: MeshOwned,
        *,
        refs: tuple[ProcessRef, ...],
        parts: Parts,
    ) -> None:
        """Have the actors of a mesh made in the processes ``refs``."""
        owned.links = tuple(self.connections.link(ref) for ref in refs)
        owned.link_to = lambda rank: self.connections.link(refs[rank])
        if event.restart is not None:
            owned.made_of = parts
        self.supervisor.own(owned, event)
        owned.spawn(parts)

    # -- what arrives from processes -----------------------------------------------------------

    def take_request(self, message: ProcessMessage, parts: Parts, peer: Peer) -> None:
        """Handle a request of another process, or of this one."""
        if isinstance(message, SpawnActor) and (owner := peer.worker) is not None:
            # An actor does not outlive its owner: hear of the owner's end.
            self.connections.watch(owner)
        self._hosting.take(message, parts, peer)

    def take_messages(self, messages: Deliveries, peer: Peer) -> Deliveries:
        """Hand messages to actors, from any thread; return those that only the loop can hand on."""
        if not self.io.is_current:
            return self._hosting.deliver_here(messages, peer)
        self._hosting.deliver_many(messages, peer)
        return []

    def take_notice(self, message: ActorFailed | FailurePassedUp, parts: Parts) -> None:
        """Hear of a failure of an actor whose mesh is owned here."""
        self.supervisor.notice(message, parts)

    # -- what agents say -----------------------------------------------------------------------

    def process_started(self, message: talk.ProcessStarted, host: HostRef) -> None:
        """A worker that is owned here was forked."""
        name = ProcessName(host.job, message.process_id)
        procs = self.supervisor.procs_of(name)
        if procs is not None:
            procs.started(message.process_id, message.pid)
            self.supervisor.record.began(name, message.pid)

    def process_ready(self, message: talk.ProcessReady, host: HostRef) -> None:
        """A worker listens."""
        name = ProcessName(host.job, message.process_id)
        self.connections.located(name, message.address)
        procs = self.supervisor.procs_of(name)
        if procs is not None:
            procs.started(message.process_id, message.pid)
            procs.ready(message.process_id)

    def process_exited(self, message: ProcessExited, host: HostRef) -> None:
        """A worker is gone."""
        name = ProcessName(host.job, message.process_id)
        if message.reason == talk.NOT_HERE and self.connections.never_came(name):
            return
        self.lose_processes((name,), fault_of_exit(message, self.wall_clock.now()))

    def host_lost(self, host: HostRef, why: str) -> None:
        """An agent is gone, and with it all workers of its host.

        One that only does not answer is ended first, so that this becomes true.
        """
        fence = self.connections.fences.get(host.agent_address)
        if fence is not None:
            fence()
        reason = f"host {host.name} is lost: {why}"
        for told in list(self.on_host_news):
            told(host, reason, True)
        owned = {
            ProcessName(ref.job, ref.process_id)
            for mesh in self.supervisor.owned_procs()
            for ref in mesh.refs
            if ref.agent_address == host.agent_address
        }
        fault = Fault("host_lost", reason, time_s=self.wall_clock.now())
        self.lose_processes(tuple(sorted(owned)), fault)
        # Of others' processes it is only known that they are out of reach from here.
        for process in sorted(self.connections.known_on(host.agent_address) - owned):
            self.connections.lose(process, reason)
            self._hosting.owner_gone(process)

    def lose_processes(self, processes: tuple[ProcessName, ...], fault: Fault) -> None:
        """Take processes for gone; on the connections' loop."""
        news = tuple(process for process in processes if self.fault_of(process) is None)
        # Calls end before owners are asked: an owner may wait for one of them.
        for process in news:
            self.connections.fail(process, fault)
        owned = [(process, self.supervisor.procs_of(process)) for process in news]
        self.handle(ProcessesGone(news, fault))
        for process, procs in owned:
            if procs is not None:
                procs.gone(process.process_id, fault)
            self._hosting.owner_gone(process)

    def fault_of(self, process: ProcessName) -> Fault | None:
        """Return what ended a process, None if it is not known to have ended."""
        return self.supervisor.machine.fault_of(process)

    def processes_owned(self, message: talk.Owned, host: HostRef) -> None:
        """An agent has said what of a controller lives there."""
        told = self.on_owned.pop(host, None)
        if told is not None:
            told(frozenset(message.process_ids))

    def owner_replaced(self, message: talk.OwnerReplaced, host: HostRef) -> None:
        """A later controller has taken this one's place."""
        self._replaced(f"host {host.name} works for controller {message.generation} of the run")

    def _replaced(self, why: str) -> None:
        self.on_replaced(why)

    def host_leaving(self, host: HostRef, why: str) -> None:
        """An agent was asked to end; what it has started is asked to end as well."""
        for told in self.on_host_news:
            told(host, why, False)

    def log_lines(self, message: talk.LogLines, host: HostRef) -> None:
        """A worker wrote, and somebody here wants to see it."""
        procs = self.supervisor.procs_of(ProcessName(host.job, message.process_id))
        if procs is not None and procs.logs is not None:
            procs.logs.add(message.process_id, message.lines)

    def show_logs(self, owned: OwnedProcs, window_s: float, level: int | None) -> None:
        """Show what the processes of a mesh write, or no longer (a negative window)."""
        if owned.logs is not None:
            owned.logs.flush()
        owned.logs = LogWindow(window_s, self._show) if window_s >= 0 else None
        owned.forward_logs(owned.logs is not None)
        for ref in owned.refs if level is not None else ():
            self.connections.link(ref).post(lambda _: SetLogLevel(level or 0), (), None)

    def _show(self, who: str, lines: tuple[str, ...]) -> None:
        self.log_sink(who, lines)

    def stop_asked(self, reason: str) -> None:
        """The agent wants this worker to end."""
        self._stop_reason = reason
        if self._on_stop is not None:
            self._on_stop()

    def notice_for_people(self, text: str) -> None:
        """An agent has something for whoever sits before this program; nobody may."""
        with contextlib.suppress(OSError, ValueError):
            print(f"danaus: {text}", file=sys.stderr, flush=True)

    def make_controllers(self) -> None:
        """Make the actor that knows a job's controllers by name; only a controller is asked."""
        importlib.import_module("danaus.actor.controllers").make_controllers()

    # -- supervision ---------------------------------------------------------------------------

    def handle(self, event: Event) -> None:
        """Tell the supervision machine; on the connections' loop."""
        self.supervisor.handle(event)

    def actor_failed(self, cell: ActorCell, fault: Fault, fatal: bool) -> None:
        """An actor that lives here failed with nobody waiting."""
        self._hosting.actor_failed(cell, fault, fatal)

    def stop_actor(self, actor: ActorKey, reason: str) -> None:
        """Have an actor that lives here end in good order, from a thread of users' code.

        Once this returns it takes nothing more, by whatever way it comes.
        """

        async def stop() -> None:
            self._hosting.stop(actor, lambda _: None, reason)

        self.io.run(stop(), _LEAVE_LIMIT_S)

    def process_should_end(self, code: int) -> None:
        """Users' code called ``sys.exit``."""
        self._on_exit(code)

    def _fault_hook(self, failure: MeshFailure) -> None:
        # On a thread of its own: it is users' code.
        threading.Thread(
            target=call_fault_hook, args=(failure,), name="fault-hook", daemon=True
        ).start()

    def _crashed(self, facts: dict[str, Any]) -> None:
        _log.error("%s", facts.get("message"), exc_info=facts.get("exception") or None)

    # -- the end -------------------------------------------------------------------------------

    def about_to_leave(self, job: str) -> None:
        """What is owned in a job ends with this program's part in it, and that is no failure."""
        left = Fault("exit", "this program left the job", time_s=self.wall_clock.now())
        for mesh in self.supervisor.owned_procs():
            if mesh.refs[0].job == job:
                mesh.grace_s = 0.0
                self.supervisor.stop(mesh)
                self.lose_processes(
                    tuple(ProcessName(job, ref.process_id) for ref in mesh.refs), left
                )

    def shut_down(self, limit_s: float, grace_s: float | None = None) -> None:
        """Stop what lives here and what is owned here, then all threads; not from one of them.

        Args:
            limit_s: After so many seconds nothing is waited for any more.
            grace_s: Seconds that processes have to end by themselves; None: as their meshes say.
        """
        finished = threading.Event()

        def stop() -> None:
            for mesh in self.supervisor.owned_procs():
                mesh.grace_s = mesh.grace_s if grace_s is None else grace_s
            leave = functools.partial(self.supervisor.leave, finished.set)
            self._hosting.stop_all(leave, self._stop_reason)

        self.io.post(stop)
        finished.wait(limit_s)
        with contextlib.suppress(TimeoutError, ChannelClosed):
            self.io.run(self.connections.leave_all(), _LEAVE_LIMIT_S)
        if self._user_loop is not None:
            self._user_loop.stop()
        self.io.stop()
