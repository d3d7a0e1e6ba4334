"""What a host agent and its nursery say to each other, and what a worker is told at birth."""

from __future__ import annotations

import signal
from typing import Any

import msgspec

from danaus.actor.binding import Place

STACKS_SIGNAL = signal.SIGUSR2  # a worker writes all its stacks to its log


class WorkerSpec(msgspec.Struct, frozen=True, tag="fork"):
    """One worker: who it is and where its things lie.

    ``bind`` is the address that it listens on, ``agent_address`` its host agent's; ``mesh_id``
    and ``rank`` are its place in its process mesh, ``sockets`` a folder of this host for unix
    sockets, ``lost_limit_s`` how long sessions with it outlive their connection.  ``place`` is
    where it may run, ``bootstrap_path`` a file with what it calls first; empty: nothing.
    ``workspace`` is a folder that it imports from first; ``root_id`` and ``root_address`` are the
    controller that all began with.
    """

    process_id: str
    mesh_id: str
    rank: int
    host: str
    run_dir: str
    log_path: str
    position_path: str
    bind: str
    agent_address: str
    sockets: str = ""
    lost_limit_s: float = 0.0
    env: dict[str, str] = {}
    place: Place = Place()
    bootstrap_path: str = ""
    workspace: str = ""
    root_id: str = ""
    root_address: str = ""


class NurserySettings(msgspec.Struct, frozen=True, tag="settings"):
    """First words to a new nursery.  ``lifeline_fd`` ends it and its workers with the agent.

    ``spawns``: workers are not forked; each is an interpreter of its own that imports for itself.
    """

    preload: tuple[str, ...]
    sys_path: tuple[str, ...]
    secret_path: str
    lifeline_fd: int
    spawns: bool = False


class Born(msgspec.Struct, frozen=True, tag="born"):
    """What a worker is told: by its pipe, if it was not forked."""

    settings: NurserySettings
    spec: WorkerSpec


class NurseryReady(msgspec.Struct, frozen=True, tag="ready"):
    """Modules are imported.  ``missing`` could not be; ``num_threads`` should be 1."""

    took_s: float
    num_threads: int
    missing: dict[str, str]


class Forked(msgspec.Struct, frozen=True, tag="forked"):
    """A worker exists."""

    process_id: str
    pid: int
    started: int


class ForkFailed(msgspec.Struct, frozen=True, tag="fork_failed"):
    """No worker: the kernel refused."""

    process_id: str
    why: str


class Reaped(msgspec.Struct, frozen=True, tag="reaped"):
    """A worker has ended; ``wait_status`` as of ``waitpid``."""

    process_id: str
    pid: int
    wait_status: int


ToNursery = NurserySettings | WorkerSpec
FromNursery = NurseryReady | Forked | ForkFailed | Reaped

_encoder = msgspec.msgpack.Encoder()
to_nursery: msgspec.msgpack.Decoder[ToNursery] = msgspec.msgpack.Decoder(ToNursery)
from_nursery: msgspec.msgpack.Decoder[FromNursery] = msgspec.msgpack.Decoder(FromNursery)


born: msgspec.msgpack.Decoder[Born] = msgspec.msgpack.Decoder(Born)


def encode(message: Any) -> bytes:
    """Return the bytes of one message; see ``nursery_stream`` for how it travels."""
    return _encoder.encode(message)
