"""How processes are named and found.

A process id reads ``host/name/rank#incarnation``; a controller's ``controller/PID/0#0``.
"""

from __future__ import annotations

from dataclasses import dataclass

from danaus.core.errors import ConfigError
from danaus.wire.secret import Secret

CONTROLLERS = "controllers"
"""The mesh of the actor that knows a job's controllers by name."""

_FORBIDDEN = "/#\0 \n"


@dataclass(frozen=True)
class ProcessRef:
    """One process, as others refer to it; pickles.

    Where it ``restarts``, a reference to it is good for those that take its place too.

    Args:
        process_id: Its name, unique in its job.
        agent_address: Its host agent, which knows where it listens; empty for a controller.
        address: Where a controller listens; empty where the agent is to be asked.
        job: Which job's secret opens its door.
    """

    process_id: str
    agent_address: str
    address: str
    job: str
    restarts: bool = False


@dataclass(frozen=True)
class HostRef:
    """One host, as others refer to it; pickles."""

    name: str
    agent_address: str
    job: str


def job_of(secret: Secret) -> str:
    """Return a public name for the job whose secret this is; it tells nothing of the secret."""
    return secret.mac(b"danaus job name", b"").hex()[:16]


def process_id(host: str, name: str, rank: int, *, incarnation: int) -> str:
    """Return the name of one process of a mesh."""
    return f"{host}/{name}/{rank}#{incarnation}"


def host_name(process_id: str) -> str:
    """Return the name of the host that a process lives on."""
    return process_id.partition("/")[0]


def check_name(name: str, what: str) -> str:
    """Return ``name``, or raise ``ConfigError`` if it cannot stand in a process id."""
    if not name or any(char in name for char in _FORBIDDEN) or name.startswith("."):
        raise ConfigError(
            what=f"{what} {name!r}", needed="a name without slash, '#' and white space"
        )
    return name
