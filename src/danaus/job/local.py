"""Hosts on this machine: each is a host agent with its nursery and workers.

Several hosts on one machine behave like several machines: a host's agent may die and take its
workers along, and be replaced, while the others go on.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from danaus.actor import boot
from danaus.actor.adopting import LeftProcs, Takeover
from danaus.actor.agent_link import Patience
from danaus.actor.found_process import FoundProcess
from danaus.actor.holdings import HostHeld
from danaus.actor.identity import HostRef
from danaus.actor.local_agent import HostOptions, LocalAgent, start_agents
from danaus.actor.mesh import HostMesh
from danaus.actor.process_runtime import get_runtime
from danaus.core.errors import ConfigError
from danaus.core.extent import Extent
from danaus.core.temporary_folder import TemporaryFolder
from danaus.wire.address import Address
from danaus.wire.secret import Secret

HOLDINGS = "holdings.jsonl"
"""What a detached job's controller holds, in the run folder's ``control``."""
_END_LIMIT_S = 5.0
_SOCKET_FOLDER_BYTES = 60


@dataclass(frozen=True)
class JobState:
    """The meshes of a job that has been applied.

    Args:
        hosts: The hosts.
        left: Meshes of processes that an earlier controller of the same run folder has left, by
            name: to be adopted, or to be ended with the job.
    """

    hosts: HostMesh
    left: Mapping[str, LeftProcs] = field(default_factory=dict)

    @classmethod
    def of(cls, hosts: tuple[HostRef, ...], takeover: Takeover | None) -> Self:
        """Return the state of a job on these hosts, with what was left on them."""
        left = takeover.left() if takeover is not None else ()
        mesh = HostMesh(Extent(("hosts",), (len(hosts),)).region(), hosts)
        return cls(mesh, {each.name: each for each in left})


def takeover_of(run_dir: Path, *, detached: bool) -> Takeover | None:
    """Return a controller's turn at a run; None: the run ends with its controller."""
    path = run_dir / "control" / HOLDINGS
    if not detached:
        path.unlink(missing_ok=True)  # what it told of has ended, or ends now
        return None
    return Takeover(path, get_runtime())


class LocalJob:
    """N hosts on this machine.

    Args:
        num_hosts: How many.
        run_dir: Folder of the run; None: a temporary one that ``kill`` removes.
        secret_path: File of the job's secret; None: made in ``run_dir``.
        preload: Modules that each nursery imports before it forks workers.
        detached: Hosts go on without this program; a program that applies a job with the same run
            folder later finds them, and what runs there (A-12).
        sockets: Folder with a short path for unix sockets; None: in ``run_dir`` or, where that
            is too long, a temporary one.

    Attributes:
        heartbeat_limit_s: A host whose agent is silent for so many seconds, and then does not
            answer either, is lost (P-2); set it before ``apply``.
        bind: Where everyone listens, as in ``tcp:127.0.0.1:0``; None: unix sockets; likewise.
        spawns: Whether each worker is an interpreter of its own instead of a fork of its nursery,
            for platforms and libraries that bear no fork: a start costs the imports; likewise.
            By default where ``boot.MAY_FORK`` says why: on macOS.
        adopts: Whether what an earlier controller has left goes on, where the job is detached; else
            it is ended; likewise.
    """

    heartbeat_limit_s: float = 5.0
    adopts: bool = True
    spawns: bool = not boot.MAY_FORK
    bind: Address | None = None

    def __init__(
        self,
        num_hosts: int = 1,
        *,
        run_dir: Path | str | None = None,
        secret_path: Path | str | None = None,
        preload: Sequence[str] = (),
        detached: bool = False,
        sockets: Path | str | None = None,
    ) -> None:
        if num_hosts < 1:
            raise ConfigError(what=f"a job of {num_hosts} hosts", needed="at least 1")
        self._num_hosts = num_hosts
        self._run_dir = Path(run_dir).absolute() if run_dir is not None else None
        self._secret_path = Path(secret_path) if secret_path is not None else None
        self._sockets = Path(sockets) if sockets is not None else None
        self._preload = tuple(preload)
        self._detached = detached
        self._options: HostOptions | None = None  # while it is applied
        self._temporary: list[TemporaryFolder] = []
        self._agents: list[LocalAgent] = []
        self._hosts: tuple[HostRef, ...] = ()
        self._job = ""
        self._takeover: Takeover | None = None

    def apply(self) -> Self:
        """Start the hosts; returns once every agent listens.

        Raises:
            ConfigError: An agent did not start; what did is ended again.
            AddressRefused: The address to listen at cannot be bound.
        """
        if self._agents:
            return self
        runtime = get_runtime()
        try:
            options = self._options = self._new_options()
            takeover = self._takeover = takeover_of(options.run_dir, detached=self._detached)
            bind, name = self.bind, takeover.controller_name if takeover else "controller"
            self._job = runtime.connections.join(
                Secret.load(options.secret_path),
                Address.tcp(bind.host, 0) if bind else Address.unix(options.sockets / name),
                Patience(self.heartbeat_limit_s),
                generation=takeover.generation if takeover else 0,
            )
            known = takeover.hosts if takeover else {}
            if takeover is not None and not self.adopts:
                takeover.forget()
                _end_agents(known.values())
                known = {}
            self._num_hosts = max(self._num_hosts, len(known))
            self._agents = [LocalAgent(f"host{n}", options) for n in range(self._num_hosts)]
            self._hosts = self._find_or_start(known)
        finally:
            if not self._hosts:
                self._end(keep_found=True)
        return self

    def _find_or_start(self, known: Mapping[str, HostHeld]) -> tuple[HostRef, ...]:
        """Adopt the agents that live and answer, and start the others."""
        runtime, takeover = get_runtime(), self._takeover
        if takeover is not None:
            takeover.begin(self._job)
            found = [agent for agent in self._agents if agent.find(known.get(agent.name))]
            silent = {host.name for host in takeover.ask([agent.host for agent in found])}
            for agent in found:
                if agent.name in silent:
                    agent.kill()
                    agent.wait(_END_LIMIT_S)
                    runtime.io.post(runtime.connections.forget_host, agent.host)
                else:
                    agent.watch(runtime)
        start_agents([agent for agent in self._agents if not agent.is_alive], runtime)
        self._hold(self._agents)
        return tuple(agent.host for agent in self._agents)

    def _hold(self, agents: Iterable[LocalAgent]) -> None:
        """Write down where a later controller finds these."""
        if self._takeover is not None:
            for agent in agents:
                self._takeover.hold(agent.held)

    def state(self) -> JobState:
        """Return the job's meshes.

        Raises:
            ConfigError: ``apply`` was not called.
        """
        if not self._hosts:
            raise ConfigError(what="state() of a job that does not run", to_do="call apply() first")
        return JobState.of(self._hosts, self._takeover)

    @property
    def takeover(self) -> Takeover | None:
        """What an earlier controller has left, where the job is detached."""
        return self._takeover

    @property
    def missing(self) -> dict[int, str]:
        """Hosts that are not there, by rank: none, they were started."""
        return {}

    def agent_pids(self) -> dict[str, int]:
        """Return the pid of each host's agent."""
        return {agent.name: agent.pid for agent in self._agents}

    def grow(self, mesh: str, num_hosts: int) -> HostMesh:
        """Start more hosts; returns once the agent of each listens.

        Args:
            mesh: Name of the mesh in ``state()``: ``hosts``.
            num_hosts: How many more.

        Returns:
            All hosts.

        Raises:
            ConfigError: An agent did not start.
        """
        options = self._applied(mesh, "grow()")
        first = len(self._agents)
        agents = [LocalAgent(f"host{first + n}", options) for n in range(num_hosts)]
        self._agents += agents  # before they start: whatever comes, ``kill`` ends them
        self._hosts = (*self._hosts, *start_agents(agents, get_runtime()))
        self._hold(agents)
        self._num_hosts = len(self._hosts)
        return self.state().hosts

    def replace(self, mesh: str, host: int) -> HostMesh:
        """Start a host again whose agent is gone or does not answer; its address stays.

        Whatever the old agent left is ended first.  References to processes that were there end
        in ``SupervisionError``.

        Args:
            mesh: Name of the mesh in ``state()``: ``hosts``.
            host: Its rank there.

        Returns:
            The host, as a mesh without axes.
        """
        options = self._applied(mesh, "replace()")
        runtime, old = get_runtime(), self._agents[host]
        old.kill()
        old.wait(_END_LIMIT_S)
        old.release()
        runtime.io.post(runtime.connections.forget_host, self._hosts[host])
        agent = LocalAgent(old.name, options)
        self._agents[host] = agent
        (ref,) = start_agents([agent], runtime)
        self._hold([agent])
        self._hosts = (*self._hosts[:host], ref, *self._hosts[host + 1 :])
        return self.state().hosts.slice(hosts=host)

    def kill(self) -> None:
        """End every host and all that runs there, at once; safe to call twice."""
        self._end()

    def let_go(self) -> None:
        """End what was started here; what an earlier controller has left goes on, for a later."""
        self._end(keep_found=True)

    def _end(self, *, keep_found: bool = False) -> None:
        """End every host, or all but those that an earlier controller has started."""
        agents, self._agents, self._hosts = self._agents, [], ()
        self._options = None
        job, self._job = self._job, ""
        folders, self._temporary = self._temporary, []
        takeover, self._takeover = self._takeover, None
        # From the last to the first, and whatever fails, the rest is done all the same (P-4).
        with contextlib.ExitStack() as ending:
            for folder in folders:
                ending.callback(folder.remove)
            kept = [agent for agent in agents if keep_found and agent.was_found]
            ended = [agent for agent in agents if agent not in kept]
            for agent in kept:
                ending.callback(agent.release)
            for agent in ended:
                ending.callback(_let_go, agent)
            for agent in ended:
                ending.callback(agent.kill)
            if takeover is not None:
                ending.callback(takeover.end, nothing_is_left=not kept)
            if job:
                ending.callback(get_runtime().connections.leave, job)

    def __enter__(self) -> Self:
        return self.apply()

    def __exit__(self, *_: object) -> None:
        self.kill()

    def _applied(self, mesh: str, what: str) -> HostOptions:
        if mesh != "hosts":
            raise ConfigError(what=f"no mesh {mesh!r} in this job", needed="hosts")
        if self._options is None:
            raise ConfigError(what=f"{what} in a job that does not run", to_do="call apply() first")
        return self._options

    # -- folders -------------------------------------------------------------------------------

    def _new_options(self) -> HostOptions:
        run_dir = self._run_dir or self._temporary_folder()
        (run_dir / "control").mkdir(mode=0o700, parents=True, exist_ok=True)
        sockets = self._sockets or self._socket_folder(run_dir)
        secret_path = self._secret_path or run_dir / "secret"
        Secret.ensure(secret_path)
        how = (self._preload, self._detached, self.bind)
        return HostOptions(run_dir, sockets, secret_path, *how, spawns=self.spawns)

    def _temporary_folder(self) -> Path:
        folder = TemporaryFolder(outlives=self._detached)
        self._temporary.append(folder)
        return folder.path

    def _socket_folder(self, run_dir: Path) -> Path:
        here = run_dir / "control" / "sockets"
        if len(os.fsencode(here)) <= _SOCKET_FOLDER_BYTES:
            here.mkdir(mode=0o700, exist_ok=True)
            return here
        return self._temporary_folder()


def _end_agents(hosts: Iterable[HostHeld]) -> None:
    """SIGKILL agents that an earlier controller has started; their workers die with them."""
    found = [FoundProcess.find(host.agent_pid, host.agent_started) for host in hosts]
    for process in filter(None, found):
        process.kill()
    for process in filter(None, found):
        with contextlib.suppress(subprocess.TimeoutExpired):  # the new agent ends what is left
            process.wait(_END_LIMIT_S)
        process.close()


def _let_go(agent: LocalAgent) -> None:
    """Reap an agent that was killed, as far as the kernel lets it die."""
    agent.wait(_END_LIMIT_S)
    agent.release()
