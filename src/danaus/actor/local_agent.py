"""Starting a host agent on this machine, and knowing at once when it ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import msgspec

from danaus.actor import boot, procfs
from danaus.actor.agent_messages import AgentSettings
from danaus.actor.found_process import FoundProcess
from danaus.actor.holdings import HostHeld
from danaus.actor.identity import HostRef, check_name, job_of
from danaus.actor.log_tail import log_path, tail
from danaus.actor.runtime import Runtime
from danaus.core.clock import Deadline
from danaus.core.errors import ConfigError, DeadlinePassed
from danaus.core.lifeline import open_lifeline
from danaus.core.process_descriptor import open_process
from danaus.core.whole_file import WholeFile
from danaus.wire.address import Address
from danaus.wire.secret import Secret

_READY_LIMIT_S = 30.0
_END_LIMIT_S = 5.0


@dataclass(frozen=True)
class HostOptions:
    """How hosts of this machine are set up.

    Args:
        run_dir: Folder of the run: agents' folders go below ``control``, logs into ``logs``.
        sockets: Folder with a short path for unix sockets.
        secret_path: File of the job's secret.
        preload: Modules that the nursery imports before it forks workers (``torch``).
        detached: Go on without this program.
        bind: Where agents listen; None: unix sockets in ``sockets``.
        folder: Private folder on this machine's own disk for agents' folders; None: below
            ``control`` in ``run_dir``.
        lost_limit_s: Seconds for which sessions of owners outlive their connection.
        spawns: Workers are not forked: each is an interpreter of its own.
    """

    run_dir: Path
    sockets: Path
    secret_path: Path
    preload: tuple[str, ...] = ()
    detached: bool = False
    bind: Address | None = None
    folder: Path | None = None
    lost_limit_s: float = 10.0
    spawns: bool = not boot.MAY_FORK


class LocalAgent:
    """A host agent that this program has started.

    Args:
        name: Of its host.
        options: How it is set up.
    """

    def __init__(self, name: str, options: HostOptions) -> None:
        self.name = check_name(name, "the name of a host")
        self._options = options
        self._folder = (options.folder or options.run_dir / "control" / "agents") / name
        self._process: subprocess.Popen[bytes] | FoundProcess | None = None
        self._descriptor = -1
        self._lifeline = -1
        self._runtime: Runtime | None = None
        self.host = HostRef(name, "", job_of(Secret.load(options.secret_path)))

    @property
    def pid(self) -> int:
        """Pid of the agent, 0 if it does not run."""
        return self._process.pid if self._process is not None else 0

    @property
    def is_alive(self) -> bool:
        """Tell whether the agent runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def was_found(self) -> bool:
        """Tell whether an earlier controller has started it."""
        return isinstance(self._process, FoundProcess)

    @property
    def exit_code(self) -> int | None:
        """How the agent's process has ended, as ``subprocess`` says it; None: it has not."""
        return self._process.poll() if self._process is not None else None

    @property
    def held(self) -> HostHeld:
        """What a later controller must know to find the agent."""
        stat = procfs.read_stat(self.pid) if self.pid else None
        started = stat.started if stat is not None else 0
        return HostHeld(self.name, self.host.agent_address, self.pid, started)

    # -- beginning -----------------------------------------------------------------------------

    def find(self, held: HostHeld | None) -> bool:
        """Take the agent that an earlier controller has started for this one, if it lives."""
        if held is None:
            return False
        self._process = FoundProcess.find(held.agent_pid, held.agent_started)
        self.host = HostRef(self.name, held.agent_address, self.host.job)
        return self._process is not None

    def launch(self) -> int:
        """Start the agent's process; return the descriptor that ``await_ready`` reads."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (self._options.run_dir / "logs").mkdir(mode=0o700, exist_ok=True)
        settings_path = self._folder / "agent.json"
        with contextlib.ExitStack() as theirs, contextlib.ExitStack() as failing:
            log = os.open(self.log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            theirs.callback(os.close, log)
            lifeline_read, self._lifeline = open_lifeline()
            theirs.callback(os.close, lifeline_read)
            ready_read, ready_write = os.pipe()
            theirs.callback(os.close, ready_write)
            failing.callback(os.close, ready_read)
            settings = self._settings(lifeline_read, ready_write)
            WholeFile(settings_path).write(msgspec.json.encode(settings))
            self._process = subprocess.Popen(
                boot.command("danaus.actor.agent", os.fspath(settings_path)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(lifeline_read, ready_write),
                start_new_session=True,
            )
            failing.pop_all()
        return ready_read

    @property
    def log_path(self) -> str:
        """Where the agent writes."""
        return log_path(self._options.run_dir, f"agent-{self.name}")

    def await_ready(self, ready_fd: int, deadline: Deadline) -> HostRef:
        """Wait until the agent listens.

        Raises:
            ConfigError: It ended instead.
            DeadlinePassed: It took too long.
        """
        poll = select.poll()
        poll.register(ready_fd, select.POLLIN)
        if not poll.poll(deadline.remaining_s() * 1000):
            raise DeadlinePassed(f"the agent of {self.name} to listen", deadline.limit_s)
        said = os.read(ready_fd, 4096).decode().strip()
        if not said:
            self.wait(_END_LIMIT_S)
            code = self._process.returncode if self._process is not None else None
            last = "; ".join((f"it ended with {code}", *tail(self.log_path, 3)))
            raise ConfigError(
                what=f"the agent of {self.name} did not start",
                needed=last,
                to_do=f"see {self.log_path}",
            )
        self.host = HostRef(self.name, said, self.host.job)
        return self.host

    def watch(self, runtime: Runtime) -> None:
        """Tell ``runtime`` at once when the agent's process ends (P-2)."""
        self._runtime = runtime
        if self._process is not None:
            self._descriptor = _descriptor(self._process)
            runtime.connections.fences[self.host.agent_address] = self._process.kill
            runtime.io.post(self._watch, runtime, self._descriptor)

    def _watch(self, runtime: Runtime, descriptor: int) -> None:
        asyncio.get_running_loop().add_reader(descriptor, self._ended, runtime, descriptor)

    def _ended(self, runtime: Runtime, descriptor: int) -> None:
        self._unwatch(descriptor)
        runtime.connections.lose_host(self.host, f"its agent ended{self._how_it_ended()}")

    def _how_it_ended(self) -> str:
        if isinstance(self._process, FoundProcess):
            return ""  # that only its parent is told
        code = self.exit_code
        return "" if code is None else f": {procfs.how_ended(code)}"

    def _unwatch(self, descriptor: int) -> None:
        if descriptor == self._descriptor >= 0:
            asyncio.get_running_loop().remove_reader(descriptor)
            os.close(descriptor)
            self._descriptor = -1

    # -- ending --------------------------------------------------------------------------------

    def kill(self) -> None:
        """SIGKILL the agent; its nursery and workers die with it.  Nobody is told."""
        try:
            self.unwatch()
        finally:
            if self._process is not None and self._process.poll() is None:
                self._process.kill()

    def ask_to_end(self) -> None:
        """SIGTERM the agent: it ends once its workers have finished what they are at."""
        if self._process is not None:
            self._process.terminate()

    def wait(self, limit_s: float) -> bool:
        """Wait for the agent's end; false if it lives on after ``limit_s`` seconds."""
        if self._process is None:
            return True
        try:
            self._process.wait(limit_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def release(self) -> None:
        """Let go of what this program holds of an agent that has ended, or is detached."""
        self.unwatch()
        if isinstance(self._process, FoundProcess):
            self._process.close()
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1

    def unwatch(self) -> None:
        """Stop to tell of the agent's end."""
        if self._runtime is not None:
            self._runtime.connections.fences.pop(self.host.agent_address, None)
        if self._descriptor < 0 or self._runtime is None:
            return
        if self._runtime.io.is_stopped:
            os.close(self._descriptor)
            self._descriptor = -1
        else:
            self._runtime.io.run(self._unwatch_on_loop(), _END_LIMIT_S)

    async def _unwatch_on_loop(self) -> None:
        self._unwatch(self._descriptor)

    # -- settings ------------------------------------------------------------------------------

    def _settings(self, lifeline_fd: int, ready_fd: int) -> AgentSettings:
        options = self._options
        address = options.bind or Address.unix(options.sockets / f"{self.name}-agent")
        return AgentSettings(
            host=self.name,
            folder=os.fspath(self._folder),
            sockets=os.fspath(options.sockets),
            run_dir=os.fspath(options.run_dir),
            address=str(address),
            secret_path=os.fspath(options.secret_path),
            preload=options.preload,
            sys_path=_import_path(),
            detached=options.detached,
            controller_pid=os.getpid(),
            lifeline_fd=lifeline_fd,
            ready_fd=ready_fd,
            lost_limit_s=options.lost_limit_s,
            spawns=options.spawns,
        )


def _descriptor(process: subprocess.Popen[bytes] | FoundProcess) -> int:
    """Return a descriptor that becomes readable once the process has ended."""
    if isinstance(process, FoundProcess):
        return process.duplicate()
    return open_process(process.pid)


def start_agents(
    agents: list[LocalAgent], runtime: Runtime, limit_s: float = _READY_LIMIT_S
) -> tuple[HostRef, ...]:
    """Start agents side by side and wait until all listen."""
    deadline = Deadline.after(limit_s)
    with contextlib.ExitStack() as stack:
        waiting = []
        for agent in agents:
            fd = agent.launch()
            stack.callback(os.close, fd)
            waiting.append((agent, fd))
        hosts = tuple(agent.await_ready(fd, deadline) for agent, fd in waiting)
    for agent in agents:
        agent.watch(runtime)
    return hosts


def _import_path() -> tuple[str, ...]:
    """Return this program's import path, made absolute."""
    return tuple(dict.fromkeys(os.path.abspath(entry) for entry in sys.path))
