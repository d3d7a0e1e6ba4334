"""What a controller and a host that waits to be joined say to each other.

All on one session, opened by the controller with the hosts' secret.  What is said with the host
agent that the host then starts is in ``agent_messages``.
"""

from __future__ import annotations

import msgspec

from danaus.wire.codec import Codec

LOOPBACK = "127.0.0.1"
"""Where both listen if the host waits at a socket file: they are on one machine."""


class JoinHost(msgspec.Struct, frozen=True, tag="join_host"):
    """Work for this job from now on; answered by ``HostJoined`` or ``HostRefused``.

    A host that works for the job already ends all that it has of it and begins anew.

    Args:
        job: Public name of the job.
        who: The controller, in words.
        host: Name of the host in process ids.
        dialled: Address by which the controller reached this host; others reach it so too.
        controller: Where the controller listens; asked there once its session is gone.
        run_dir: Folder of the run, which this host must see too; empty: a folder of its own.
        secret_path: File of the job's secret; empty: the hosts' secret is the job's.
        preload: Modules that the nursery imports.
        port: Where the last agent of this host and job listened; 0: there was none.
        detached: Go on without the controller.
        alone_limit_s: Seconds to go on without being able to tell whether the controller lives.
        adopt: What the host has of this job goes on instead, if its agent lives.
    """

    job: str
    who: str
    host: str
    dialled: str
    controller: str
    run_dir: str = ""
    secret_path: str = ""
    preload: tuple[str, ...] = ()
    port: int = 0
    detached: bool = False
    alone_limit_s: float = 600.0
    adopt: bool = False


class KillAgent(msgspec.Struct, frozen=True, tag="kill_agent"):
    """End this agent, if it still is the one, and all that it has started: it does not answer."""

    agent_pid: int
    reason: str


class LeaveHost(msgspec.Struct, frozen=True, tag="leave_host"):
    """The job is over; answered by ``HostLeft`` once nothing of it is left."""

    reason: str


class HostJoined(msgspec.Struct, frozen=True, tag="host_joined"):
    """An agent listens; ``agent_pid`` means something on the host only.

    ``goes_on``: it worked for the job before, and what it has started lives.
    """

    name: str
    agent_address: str
    agent_pid: int
    goes_on: bool = False


class HostRefused(msgspec.Struct, frozen=True, tag="host_refused"):
    """No: ``why`` is for a person."""

    why: str


class HostLeft(msgspec.Struct, frozen=True, tag="host_left"):
    """Nothing of the job is left here."""


class AgentEnded(msgspec.Struct, frozen=True, tag="agent_ended"):
    """The agent at this address is gone, and with it every worker of the host."""

    agent_address: str
    how: str


ToHost = JoinHost | KillAgent | LeaveHost
FromHost = HostJoined | HostRefused | HostLeft | AgentEnded

TO_HOST: Codec[ToHost] = Codec(ToHost)
FROM_HOST: Codec[FromHost] = Codec(FromHost)
