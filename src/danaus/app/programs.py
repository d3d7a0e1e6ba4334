"""Finding the host agents of a program with actors: of a run, of a pid, of all on this machine.

Owns ``find_agents``.  An agent of this machine is known by its command line, which names the file
of its settings; that and the job's secret can be read by its own user alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from danaus.actor import procfs
from danaus.actor.agent_files import kept_address
from danaus.actor.agent_messages import AgentSettings
from danaus.actor.boot import module_of
from danaus.app.run_folder import RunFolder
from danaus.core import proc_root
from danaus.core.errors import ConfigError, DanausError
from danaus.wire.address import Address
from danaus.wire.secret import Secret

_AGENT = "danaus.actor.agent"


@dataclass(frozen=True, slots=True)
class AgentAt:
    """A host agent and how to talk to it.

    Args:
        host: Its host.
        address: Where it listens.
        secret: The job's.
        program: Whose it is, in words.
    """

    host: str
    address: Address
    secret: Secret
    program: str


def find_agents(target: str = "") -> list[AgentAt]:
    """Return the agents of a program.

    Args:
        target: A run's folder, the pid of a program, of an agent or of a worker; empty: all of
            this user on this machine.

    Raises:
        ConfigError: There is no such program, or this system does not list its processes.
    """
    is_pid = target.isdecimal() and not Path(target).exists()
    if (is_pid or not target) and not proc_root.is_there():
        raise ConfigError(
            "programs cannot be looked for: this system does not list its processes",
            "the folder of a run",
        )
    if not target:
        return [agent for _, _, agent in _here()]
    if is_pid:
        return _of_pid(int(target))
    return _of_folder(Path(target).absolute())


def _of_pid(pid: int) -> list[AgentAt]:
    own = _line(pid)
    found = [
        agent
        for at, settings, agent in _here()
        if at in own or pid in _line(at) or settings.controller_pid == pid
    ]
    if not found:
        raise ConfigError(
            f"no program with actors has pid {pid} on this machine",
            "the pid of one, or of one of its workers, started by this user",
            "name the run's folder if a later controller drives it",
        )
    return found


def _of_folder(path: Path) -> list[AgentAt]:
    is_run = (path / "config.toml").is_file()
    found: dict[str, AgentAt] = {}
    if is_run:
        folder, where = RunFolder.open(path), os.path.relpath(path)
        for host, address in folder.addresses().get("agents", {}).items():
            found[address] = AgentAt(host, Address.parse(address), folder.secret(), where)
    for _, settings, agent in _here():
        if Path(settings.run_dir) == path:
            found.setdefault(str(agent.address), agent)
    if not found and not is_run:
        raise ConfigError(f"no program with actors runs in {path}")
    return list(found.values())


def _here() -> Iterator[tuple[int, AgentSettings, AgentAt]]:
    """Yield the agents of this user on this machine, with pid and settings."""
    for process in sorted(proc_root.ROOT.glob("[0-9]*"), key=lambda each: int(each.name)):
        try:
            if process.stat().st_uid != os.geteuid():
                continue
            words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
            if module_of(words) != _AGENT:
                continue
            path = Path(words[-2])
            settings = msgspec.json.decode(path.read_bytes(), type=AgentSettings)
            address = Address.parse(kept_address(settings.folder) or settings.address)
            secret = Secret.load(settings.secret_path)
        except (OSError, DanausError, msgspec.DecodeError):
            continue  # it has ended meanwhile, or begins
        agent = AgentAt(settings.host, address, secret, _program(settings))
        yield int(process.name), settings, agent


def _program(settings: AgentSettings) -> str:
    if (Path(settings.run_dir) / "config.toml").is_file():
        return os.path.relpath(settings.run_dir)
    return f"pid {settings.controller_pid}"


def _line(pid: int) -> list[int]:
    """Return a process, its parent, that one's parent..."""
    line: list[int] = []
    while pid > 1 and (stat := procfs.read_stat(pid)) is not None:
        line.append(pid)
        pid = stat.parent
    return line
