"""The connections of one process: the jobs it takes part in, the agents and processes it talks to.

On the connections' loop, except where it is said.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from danaus.actor import agent_messages as talk
from danaus.actor.agent_link import AgentLink, AgentListener, Patience
from danaus.actor.contexts import ProcessInfo
from danaus.actor.failure import Fault
from danaus.actor.following import Followers
from danaus.actor.generations import Generations
from danaus.actor.identity import HostRef, ProcessRef, job_of
from danaus.actor.links import Link, LinkUser, LocalLink
from danaus.actor.loop_thread import LoopThread
from danaus.actor.owned import host_of
from danaus.actor.process_link import ProcessLink
from danaus.actor.session_peer import SessionPeer
from danaus.actor.supervision_messages import ProcessName
from danaus.core.errors import ConfigError, DanausError
from danaus.wire.address import Address
from danaus.wire.reading import SharedReading, shared_reading
from danaus.wire.secret import Secret
from danaus.wire.session import Session, SessionListener, open_session, serve_sessions

PATIENCE = Patience(5.0)
LOST_LIMIT_S = 5.0
_LISTEN_LIMIT_S = 60.0
"""On a machine that is kept busy a new thread may wait long for its first turn."""
_LEAVE_LIMIT_S = 8.0


class ConnectionsUser(LinkUser, AgentListener, Protocol):
    """The process, as its connections see it."""

    @property
    def info(self) -> ProcessInfo:
        """Who this process is."""

    @property
    def io(self) -> LoopThread:
        """The connections' loop."""

    def fault_of(self, process: ProcessName) -> Fault | None:
        """Return what ended a process, None if it is not known to have ended."""

    def about_to_leave(self, job: str) -> None:
        """Let go of what is owned in a job."""


@dataclass(frozen=True)
class Job:
    """A job that this process takes part in."""

    secret: Secret
    listener: SessionListener
    address: str
    patience: Patience
    generation: int = 0


class Connections:
    """Everything that this process is connected with.

    Args:
        user: This process.
    """

    def __init__(self, user: ConnectionsUser) -> None:
        self._user = user
        self._local = LocalLink(user)
        self._jobs: dict[str, Job] = {}
        self._links: dict[ProcessName, ProcessLink] = {}
        self._followers = Followers(self, user.fault_of)
        self._agents: dict[str, AgentLink] = {}
        self._generations = Generations()
        self.reading: SharedReading | None = None
        self._partings: dict[str, list[Callable[[], Awaitable[None]]]] = {}
        self.fences: dict[str, Callable[[], None]] = {}
        """How to end an agent of this machine that does not answer, by its address."""
        self.releases: dict[str, Callable[[str], None]] = {}
        """How to tell a host that waits that it was shut down, and why, by its agent's address."""

    # -- jobs ----------------------------------------------------------------------------------

    def join(
        self,
        secret: Secret,
        bind: Address,
        patience: Patience = PATIENCE,
        *,
        generation: int = 0,
    ) -> str:
        """Listen for processes of a job; return the job's name.  From any other thread.

        Args:
            secret: The job's secret.
            bind: Where to listen.
            patience: When a host agent that is silent is given up.
            generation: Of this controller, above all before it; 0: it does not take turns.
        """
        job = job_of(secret)
        if job not in self._jobs:
            listening = self._listen(secret, bind, patience, generation=generation)
            self._user.io.run(listening, _LISTEN_LIMIT_S)
        return job

    async def _listen(
        self, secret: Secret, bind: Address, patience: Patience, *, generation: int
    ) -> None:
        job = job_of(secret)

        def serve(session: Session) -> None:
            self._serve(session, job)
            session.share_reading(self._shared_reading())

        lost_limit_s = max(LOST_LIMIT_S, patience.lost_limit_s)
        listener = await serve_sessions(bind, secret, serve, lost_limit_s=lost_limit_s)
        self._jobs[job] = Job(secret, listener, str(listener.address), patience, generation)

    def on_leave(self, job: str, parting: Callable[[], Awaitable[None]]) -> None:
        """Await ``parting()`` whenever this process leaves a job, once."""
        self._partings.setdefault(job, []).append(parting)

    def leave(self, job: str) -> None:
        """Stop to listen for a job and forget its hosts; from any other thread."""
        self._user.io.run(self._leave(job), _LEAVE_LIMIT_S)

    async def leave_all(self) -> None:
        """Leave every job."""
        for job in list(self._jobs):
            await self._leave(job)
        if self.reading is not None:
            self.reading.close()
            self.reading = None

    async def _leave(self, job: str) -> None:
        self._user.about_to_leave(job)
        async with asyncio.TaskGroup() as closing:  # each waits for its agent, which may be stopped
            for address, agent in list(self._agents.items()):
                if agent.host.job == job:
                    del self._agents[address]
                    closing.create_task(agent.close())
        for name, link in list(self._links.items()):
            if name.job == job:
                del self._links[name]
                link.fail("this process left the job", None)
        self._followers.leave(job)
        for parting in self._partings.pop(job, ()):
            await parting()
        found = self._jobs.pop(job, None)
        if found is not None:
            await found.listener.close()

    def ref(self) -> ProcessRef:
        """Return how other processes refer to this one.

        A controller of several jobs is referred to within the one that it joined last.
        """
        info = self._user.info
        if not self._jobs:
            return ProcessRef(info.process_id, "", "", "")
        job, found = list(self._jobs.items())[-1]
        if info.agent_address:
            return ProcessRef(info.process_id, info.agent_address, "", job)
        return ProcessRef(info.process_id, "", found.address, job)

    async def doors(self) -> list[tuple[Address, Secret]]:
        """Return where the host agents listen that this process has to do with, and the key."""
        found = ((link.host, self._jobs.get(link.host.job)) for link in self._agents.values())
        return [(Address.parse(h.agent_address), job.secret) for h, job in found if job is not None]

    def address_of(self, job: str) -> str:
        """Return where this process listens for a job."""
        return self._job(job).address

    def secret_of(self, job: str) -> Secret:
        """Return the secret of a job that this process takes part in."""
        return self._job(job).secret

    def _job(self, job: str) -> Job:
        found = self._jobs.get(job)
        if found is None:
            raise ConfigError(
                what=f"this process does not take part in job {job}",
                needed="the job's secret",
                to_do="refer to meshes of a job only from its own processes",
            )
        return found

    def _hello(self, job: Job) -> talk.Hello:
        info = self._user.info
        return talk.Hello(info.process_id, job.address, info.agent_address, job.generation)

    def _serve(self, session: Session, job: str) -> None:
        try:
            hello = talk.HELLO.decode(session.hello, session.peer)
        except DanausError as error:
            session.end(str(error))
            return
        if not self._generations.admit(job, hello.generation, session):
            return
        SessionPeer(session, hello, job, user=self._user)

    def _shared_reading(self) -> SharedReading | None:
        if self.reading is None:
            self.reading = shared_reading()
        return self.reading

    # -- agents --------------------------------------------------------------------------------

    def agent(self, host: HostRef) -> AgentLink:
        """Return the link to a host's agent; one that was lost long ago is tried again."""
        link = self._agents.get(host.agent_address)
        if link is None or link.may_come_up_again:
            job = self._job(host.job)
            link = self._agents[host.agent_address] = AgentLink(
                host,
                job.secret,
                self._hello(job),
                patience=job.patience,
                listener=self._user,
                tasks=self._user.io.tasks,
            )
        return link

    def lose_host(self, host: HostRef, why: str) -> None:
        """Take a host for dead, whatever its agent would say."""
        link = self._agents.get(host.agent_address)
        if link is not None:
            link.lose(why)

    def forget_host(self, host: HostRef) -> None:
        """Let the next use of a host, whose agent was replaced, begin afresh."""
        link = self._agents.pop(host.agent_address, None)
        if link is not None:
            link.lose("its agent was replaced")

    # -- processes -----------------------------------------------------------------------------

    def known_on(self, agent_address: str) -> set[ProcessName]:
        """Return the processes of a host that there are links to."""
        links = self._links.items()
        known = {name for name, link in links if link.ref.agent_address == agent_address}
        return known | self._followers.known_on(agent_address)

    def located(self, process: ProcessName, address: str) -> None:
        """Learn where a process listens."""
        link = self._links.get(process)
        if link is not None:
            link.located(address)
        self._followers.located(process, address)

    def lose(self, process: ProcessName, why: str) -> None:
        """End the link to a process that is out of reach; its next use may open another."""
        link = self._links.get(process)
        if link is not None:
            link.fail(why, None)
        self._followers.lose(process, why)

    def fail(self, process: ProcessName, fault: Fault) -> None:
        """End the link to a process that is gone, if there is one."""
        link = self._links.pop(process, None)
        if link is not None:
            link.fail(fault.reason, fault)
        self._followers.gone(process, fault)

    def never_came(self, process: ProcessName) -> bool:
        """Hear that there is no such process; tell whether one was only looked for (A-9)."""
        return self._followers.never_came(process)

    def link(self, ref: ProcessRef) -> Link:
        """Return the link to a process."""
        if ref.process_id == self._user.info.process_id:
            return self._local
        if ref.restarts:
            return self._followers.link(ref)
        name = ProcessName(ref.job, ref.process_id)
        link = self._links.get(name)
        if link is None or link.may_come_up_again:
            link = self._links[name] = self.new_link(ref, link.life + 1 if link is not None else 0)
            self.find(link, name)
        return link

    def new_link(self, ref: ProcessRef, life: int) -> ProcessLink:
        """Return a new link to exactly this process, after ``life`` others."""
        return ProcessLink(ref, self._user, self._open, life=life)

    def find(self, link: ProcessLink, name: ProcessName) -> None:
        """Have the process of a new link located; the link ends if it is known to be gone."""
        try:
            self._find(link, name)
        except ConfigError as stranger:  # of a job that this process is not, or no longer, in
            if self._links.get(name) is link:
                del self._links[name]
            link.fail(str(stranger), None)

    def _find(self, link: ProcessLink, name: ProcessName) -> None:
        fault = self._user.fault_of(name)
        if fault is not None:
            link.fail(fault.reason, fault)
        elif not link.ref.agent_address:
            link.located(link.ref.address)
        else:
            self.watch(link.ref)
            lost_why = self.agent(host_of(link.ref)).lost_why
            if lost_why:
                link.fail(lost_why, None)

    def watch(self, ref: ProcessRef) -> None:
        """Have the agent of a worker say where it listens, and when it ends."""
        self.agent(host_of(ref)).say(talk.LocateProcess(ref.process_id))

    def _open(self, link: ProcessLink, address: str) -> None:
        self._user.io.tasks.start(self._keep_open(link, address), f"to {link.ref.process_id}")

    async def _keep_open(self, link: ProcessLink, address: str) -> None:
        try:
            job = self._job(link.ref.job)
            session = await open_session(
                Address.parse(address),
                job.secret,
                talk.HELLO.encode(self._hello(job)),
                lost_limit_s=_lost_limit_s(job, link.ref),
            )
        except DanausError as error:
            link.fail(f"it cannot be reached: {error}", None)
            return
        if link.fault_why:
            session.end(link.fault_why, clean=True)
            return
        link.attach(session)
        session.share_reading(self._shared_reading())
        reason = await session.closed
        link.fail(f"the connection ended: {reason.why}", None)


def _lost_limit_s(job: Job, ref: ProcessRef) -> float:
    """Return how long a link may be without a connection: of a worker's end its agent tells."""
    return max(LOST_LIMIT_S, job.patience.lost_limit_s if ref.agent_address else 0.0)
