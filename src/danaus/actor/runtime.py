"""One process's part in the actor system: its connections, its actors, what it owns.

There is one ``Runtime`` per process.  Everything in it happens on the connections' loop, a thread
that never runs users' code; other threads hand over by ``io.post``.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from danaus.actor import agent_messages as talk
from danaus.actor.agent_link import AgentLink
from danaus.actor.cell import ActorCell
from danaus.actor.contexts import Context, ProcessInfo, current
from danaus.actor.exits import fault_of_exit
from danaus.actor.failure import Fault, MeshFailure
from danaus.actor.fault_hook import call_fault_hook
from danaus.actor.hosting import Hosting
from danaus.actor.identity import HostRef, ProcessRef, job_of
from danaus.actor.links import Link, LocalLink, Parts, Peer, ProcessLink, SessionPeer
from danaus.actor.loop_thread import LoopThread
from danaus.actor.ordering import Numbering
from danaus.actor.owned import OwnedProcs, host_of
from danaus.actor.process_messages import (
    CODEC,
    ActorFailed,
    FailurePassedUp,
    ProcessMessage,
)
from danaus.actor.supervising import Supervisor
from danaus.actor.supervision import Event, MeshOwned, ProcessesGone, ProcessName
from danaus.core.clock import Clock
from danaus.core.errors import ChannelClosed, ConfigError, DanausError
from danaus.wire.address import Address
from danaus.wire.lifecycle import ProcessExited
from danaus.wire.secret import Secret
from danaus.wire.session import Session, SessionListener, open_session, serve_sessions

LOST_LIMIT_S = 5.0
_SHUTDOWN_LIMIT_S = 5.0
_log = logging.getLogger("danaus.actor")


class WallClock:
    """Seconds since the Unix epoch."""

    def now(self) -> float:
        return time.time()


@dataclass(frozen=True)
class Job:
    """A job that this process takes part in."""

    secret: Secret
    listener: SessionListener
    address: str


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
        on_exit: Callable[[int], None] = os._exit,
    ) -> None:
        self.info = info
        self.io = LoopThread("danaus-io", self._crashed)
        self.wall_clock: Clock = WallClock()
        self.numbering = Numbering()
        self.sending = threading.Lock()
        self.log_sink: Callable[[str, tuple[str, ...]], None] | None = None
        self._on_stop = on_stop
        self._on_exit = on_exit
        self._user_loop: LoopThread | None = None
        self._making = threading.Lock()
        self._jobs: dict[str, Job] = {}
        self._links: dict[ProcessName, Link] = {}
        self._agents: dict[str, AgentLink] = {}
        self._mesh_numbers = itertools.count(1)
        self._token = secrets.token_hex(3)
        self._local = LocalLink(self)
        self._hosting = Hosting(self)
        self.supervisor = Supervisor(self._hosting, self._fault_hook, self.wall_clock)

    # -- who I am ------------------------------------------------------------------------------

    @property
    def user_loop(self) -> LoopThread:
        """The loop for users' ``async`` code; started when it is first needed."""
        with self._making:
            if self._user_loop is None:
                self._user_loop = LoopThread("danaus-actors", self._crashed)
            return self._user_loop

    def context(self) -> Context:
        """Return who calls: an actor of this process, or its main program."""
        return current.get(None) or Context(self.info)

    def new_mesh_id(self, name: str) -> str:
        """Return a name for a mesh that no other mesh of the job has."""
        return f"{name}.{self._token}{os.getpid():x}.{next(self._mesh_numbers)}"

    def ref(self) -> ProcessRef:
        """Return how other processes refer to this one.

        A controller of several jobs is referred to within the one that it joined last.
        """
        if not self._jobs:
            return ProcessRef(self.info.process_id, "", "", "")
        job, found = list(self._jobs.items())[-1]
        if self.info.agent_address:
            return ProcessRef(self.info.process_id, self.info.agent_address, "", job)
        return ProcessRef(self.info.process_id, "", found.address, job)

    # -- jobs ----------------------------------------------------------------------------------

    def join(self, secret: Secret, bind: Address) -> str:
        """Listen for processes of a job, which hold its secret; return the job's name."""
        job = job_of(secret)
        if job not in self._jobs:
            self.io.run(self._listen(job, secret, bind), LOST_LIMIT_S)
        return job

    async def _listen(self, job: str, secret: Secret, bind: Address) -> None:
        listener = await serve_sessions(bind, secret, self._serve, lost_limit_s=LOST_LIMIT_S)
        self._jobs[job] = Job(secret, listener, str(listener.address))

    def leave_job(self, job: str) -> None:
        """Stop to listen for a job and forget its hosts."""
        self.io.run(self._leave_job(job), _SHUTDOWN_LIMIT_S)

    async def _leave_job(self, job: str) -> None:
        for mesh in self.supervisor.owned_procs():
            if mesh.refs[0].job == job:
                self.supervisor.stop(mesh, 0.0)
        for address, agent in list(self._agents.items()):
            if agent.host.job == job:
                del self._agents[address]
                await agent.close()
                self._tell_lost(agent.host, Fault("exit", "this program left the job"))
        for key, link in list(self._links.items()):
            if key[0] == job:
                del self._links[key]
                link.fail("this process left the job", None)
        found = self._jobs.pop(job, None)
        if found is not None:
            await found.listener.close()

    def _job(self, job: str) -> Job:
        found = self._jobs.get(job)
        if found is None:
            raise ConfigError(
                what=f"this process does not take part in job {job}",
                needed="the job's secret",
                to_do="refer to meshes of a job only from its own processes",
            )
        return found

    def address_of(self, job: str) -> str:
        """Return where this process listens for a job."""
        return self._job(job).address

    def _serve(self, session: Session) -> None:
        peer = SessionPeer(session)

        def arrived(parts: list[bytearray]) -> None:
            try:
                message = CODEC.decode(parts[0], session.peer)
            except DanausError as error:
                session.end(str(error))
                return
            self.take_request(message, parts[1:], peer)

        session.on_message = arrived

    # -- links ---------------------------------------------------------------------------------

    def agent(self, host: HostRef) -> AgentLink:
        """Return the link to a host's agent; on the connections' loop."""
        link = self._agents.get(host.agent_address)
        if link is None:
            job = self._job(host.job)
            link = self._agents[host.agent_address] = AgentLink(
                host,
                job.secret,
                talk.Hello(self.info.process_id, job.address, self.info.agent_address),
                listener=self,
                tasks=self.io.tasks,
            )
        return link

    def lose_host(self, host: HostRef, why: str) -> None:
        """Take a host for dead, whatever its agent would say."""
        link = self._agents.get(host.agent_address)
        if link is not None:
            link.lose(why)

    def start_procs(
        self,
        owned: OwnedProcs,
        event: MeshOwned,
        *,
        hosts: tuple[HostRef, ...],
        env: dict[str, str],
    ) -> None:
        """Have the agents of ``hosts`` (one for each rank) start the processes of a mesh."""
        owned.agents = tuple(self.agent(host) for host in hosts)
        self.supervisor.own(owned, event)
        owned.start(env, self.info.process_id, self.info.agent_address)
        for host in dict.fromkeys(hosts):
            if why := self.agent(host).lost_why:
                self.host_lost(host, why)

    def forget_host(self, host: HostRef) -> None:
        """Let the next use of a host, whose agent was replaced, begin afresh."""
        self.io.post(self._forget_host, host)

    def _forget_host(self, host: HostRef) -> None:
        link = self._agents.pop(host.agent_address, None)
        if link is not None:
            link.lose("its agent was replaced")

    def link(self, ref: ProcessRef) -> Link:
        """Return the link to a process; on the connections' loop."""
        if ref.process_id == self.info.process_id:
            return self._local
        key = ProcessName(ref.job, ref.process_id)
        link = self._links.get(key)
        if link is not None:
            return link
        remote = self._links[key] = ProcessLink(ref, self, self._open)
        fault = self.supervisor.machine.fault_of(key)
        if fault is not None:
            remote.fail(fault.reason, fault)
        elif ref.agent_address:
            agent = self.agent(host_of(ref))
            if agent.lost_why:
                remote.fail(agent.lost_why, None)
            agent.say(talk.LocateProcess(ref.process_id))
        else:
            remote.located(ref.address)
        return remote

    def _open(self, link: ProcessLink, address: str) -> None:
        self.io.tasks.start(self._keep_open(link, address), f"link to {link.ref.process_id}")

    async def _keep_open(self, link: ProcessLink, address: str) -> None:
        try:
            job = self._job(link.ref.job)
            hello = talk.Hello(self.info.process_id, job.address, self.info.agent_address)
            session = await open_session(
                Address.parse(address),
                job.secret,
                talk.HELLO.encode(hello),
                lost_limit_s=LOST_LIMIT_S,
            )
        except DanausError as error:
            link.fail(f"it cannot be reached: {error}", None)
            return
        if link.fault_why:
            session.end(link.fault_why, clean=True)
            return
        link.attach(session)
        reason = await session.closed
        link.fail(f"the connection ended: {reason.why}", None)

    # -- what arrives --------------------------------------------------------------------------

    def take_request(self, message: ProcessMessage, parts: Parts, peer: Peer) -> None:
        """Handle a request of another process, or of this one."""
        self._hosting.take(message, parts, peer)

    def take_notice(self, message: ActorFailed | FailurePassedUp, parts: Parts) -> None:
        """Hear of a failure of an actor whose mesh is owned here."""
        self.supervisor.notice(message, parts)

    def process_started(self, message: talk.ProcessStarted, host: HostRef) -> None:
        """A worker that is owned here was forked."""
        procs = self.supervisor.procs_of(ProcessName(host.job, message.process_id))
        if procs is not None:
            procs.started(message.process_id, message.pid)

    def process_ready(self, message: talk.ProcessReady, host: HostRef) -> None:
        """A worker listens."""
        name = ProcessName(host.job, message.process_id)
        link = self._links.get(name)
        if isinstance(link, ProcessLink):
            link.located(message.address)
        procs = self.supervisor.procs_of(name)
        if procs is not None:
            procs.started(message.process_id, message.pid)
            procs.ready(message.process_id)

    def process_exited(self, message: ProcessExited, host: HostRef) -> None:
        """A worker is gone: end calls first, an owner may wait for one of them."""
        name = ProcessName(host.job, message.process_id)
        self._gone((name,), fault_of_exit(message, self.wall_clock.now()))

    def host_lost(self, host: HostRef, why: str) -> None:
        """An agent is gone, and with it all workers of its host."""
        reason = f"host {host.name} is lost: {why}"
        self._tell_lost(host, Fault("host_lost", reason, time_s=self.wall_clock.now()))

    def _tell_lost(self, host: HostRef, fault: Fault) -> None:
        lost = {
            ProcessName(ref.job, ref.process_id)
            for mesh in self.supervisor.owned_procs()
            for ref in mesh.refs
            if ref.agent_address == host.agent_address
        }
        lost |= {
            name
            for name, link in self._links.items()
            if isinstance(link, ProcessLink) and link.ref.agent_address == host.agent_address
        }
        self._gone(tuple(sorted(lost)), fault)

    def _gone(self, processes: tuple[ProcessName, ...], fault: Fault) -> None:
        news = tuple(p for p in processes if self.supervisor.machine.fault_of(p) is None)
        for name in news:
            link = self._links.get(name)
            if isinstance(link, ProcessLink):
                link.fail(fault.reason, fault)
        ended = [(p, procs) for p in news if (procs := self.supervisor.procs_of(p)) is not None]
        self.handle(ProcessesGone(news, fault))
        for name, procs in ended:
            procs.gone(name.process_id, fault)

    def log_lines(self, message: talk.LogLines) -> None:
        """A worker wrote, and somebody here wants to see it."""
        if self.log_sink is not None:
            self.log_sink(message.process_id, message.lines)

    def stop_asked(self) -> None:
        """The agent wants this worker to end."""
        if self._on_stop is not None:
            self._on_stop()

    # -- supervision ---------------------------------------------------------------------------

    def handle(self, event: Event) -> None:
        """Tell the supervision machine; on the connections' loop."""
        self.supervisor.handle(event)

    def actor_failed(self, cell: ActorCell, fault: Fault, fatal: bool) -> None:
        """An actor that lives here failed with nobody waiting."""
        self._hosting.actor_failed(cell, fault, fatal)

    def process_should_end(self, code: int) -> None:
        """Users' code called ``sys.exit``."""
        self._on_exit(code)

    def _fault_hook(self, failure: MeshFailure) -> None:
        # On a thread of its own: it is users' code.
        threading.Thread(
            target=call_fault_hook, args=(failure,), name="fault-hook", daemon=True
        ).start()

    def _crashed(self, facts: dict[str, Any]) -> None:
        error = facts.get("exception")
        _log.error("%s", facts.get("message"), exc_info=error or None)

    # -- the end -------------------------------------------------------------------------------

    def shut_down(self, limit_s: float) -> None:
        """Stop what lives here and what is owned here, then all threads; not from one of them."""
        finished = threading.Event()
        self.io.post(lambda: self._hosting.stop_all(lambda: self.supervisor.leave(finished.set)))
        finished.wait(limit_s)
        with contextlib.suppress(TimeoutError, ChannelClosed):
            self.io.run(self._leave_all(), _SHUTDOWN_LIMIT_S)
        if self._user_loop is not None:
            self._user_loop.stop()
        self.io.stop()

    async def _leave_all(self) -> None:
        async with asyncio.TaskGroup() as group:
            for job in list(self._jobs):
                group.create_task(self._leave_job(job))
