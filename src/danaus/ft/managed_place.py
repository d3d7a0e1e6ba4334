"""Where a ``Manager``'s process stands, from the words that TorchFT's users know.

Owns ``ManagerOptions`` and what follows from them: addresses, the secret's file, names.  Nothing
is read from the environment; what is missing is asked for.
"""

from __future__ import annotations

import os
import re
import socket
import uuid
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, TypedDict, Unpack

import torch
import torch.distributed as dist

from danaus.core.clock import time_of_day
from danaus.core.errors import ConfigError
from danaus.ft.contributions import WorldSizeMode
from danaus.ft.pending import seconds_of
from danaus.ft.place import Place
from danaus.quorum.folder import RunFiles
from danaus.wire.address import Address

_SECRET_NAME = "secret"
_ALL_IPV4, _ALL_IPV6 = "0.0.0.0", "::"


class ManagerOptions(TypedDict, total=False):
    """What a ``Manager`` may be told besides its state and its size.

    Attributes:
        replica_id: Stable name of the replica; its place among the others follows from it.  A
            random one unless given.
        lighthouse_addr: Where the quorum service listens: ``tcp:host:port``, ``http://host:port``
            or ``unix:/path``; of several candidates all, with commas between them.
        secret_path: The job's secret, a 0600 file; beside the socket unless given.
        folder: Of a run on one machine; in place of the two above.
        place: All of where this process stands, for those who have one (``ft.Place``).
        rank: Of this process inside its replica; that of the default process group unless given.
        world_size: Processes of a replica; the size of that group unless given.
        incarnation: Must grow with each start of the replica, and be the same at all its ranks.
            From the clock unless given; several ranks take that of their rank 0.
        use_async_quorum: Whether the quorum is asked for while the forward runs.
        timeout: How long an exchange may take, in seconds or as a ``timedelta``.
        quorum_timeout: How long to wait for a quorum; for as long as it takes unless given.
        world_size_mode: Whether replicas above ``min_replica_size`` are spares.
        max_retries: Discarded steps in a row after which ``should_commit`` raises.
        not_compared: Names, with wildcards, of what may differ between replicas:
            ``user/default/model/*.running_mean``.
        hostname: Address or host name to listen at.
        port: To listen at; any unless given.
        init_sync: Means nothing here: states are always compared, and equal ones never sent.
        connect_timeout, heartbeat_interval, quorum_retries, store_addr, store_port: Mean nothing
            here.
    """

    replica_id: str
    lighthouse_addr: str
    secret_path: str | os.PathLike[str]
    folder: str | os.PathLike[str]
    place: Place
    rank: int
    world_size: int
    incarnation: int
    use_async_quorum: bool
    timeout: timedelta | float
    quorum_timeout: timedelta | float | None
    world_size_mode: WorldSizeMode
    max_retries: int | None
    not_compared: Sequence[str]
    hostname: str
    port: int
    init_sync: bool
    connect_timeout: timedelta | float
    heartbeat_interval: timedelta | float
    quorum_retries: int
    store_addr: str
    store_port: int


def check_options(options: dict[str, Any]) -> None:
    """Raise ``ConfigError`` for an option that is none."""
    known = ManagerOptions.__annotations__
    for name in options:
        if name == "checkpoint_transport":
            raise ConfigError(
                "Manager was given a checkpoint_transport",
                "none: a replica's state travels over danaus' own connections",
                "leave it out",
            )
        if name not in known:
            raise ConfigError(f"Manager has no option {name}", f"one of {', '.join(sorted(known))}")


def place_of(**options: Unpack[ManagerOptions]) -> Place:
    """Return where the process of these options stands.

    Raises:
        ConfigError: What is needed to reach the others was not given.
    """
    if (place := options.get("place")) is not None:
        return place
    rank, world_size = _rank_of(options)
    incarnation = _incarnation_of(options, rank, world_size)
    replica_id = options.get("replica_id") or _random_name(world_size)
    services, secret = _service_of(options)
    return Place(
        replica_id=replica_id,
        rank=rank,
        num_ranks=world_size,
        incarnation=incarnation,
        quorum_address=",".join(str(each) for each in services),
        secret_path=str(secret),
        data_address=_data_address(options, services[0], f"{replica_id}-{rank}-{incarnation}"),
    )


def _rank_of(options: ManagerOptions) -> tuple[int, int]:
    inside = dist.is_initialized()
    rank = options.get("rank", dist.get_rank() if inside else 0)
    world_size = options.get("world_size", dist.get_world_size() if inside else 1)
    if not 0 <= rank < world_size:
        raise ConfigError(
            f"rank {rank} of {world_size}", f"0 to {world_size - 1}", "pass rank= and world_size="
        )
    return rank, world_size


def _random_name(world_size: int) -> str:
    if world_size == 1:
        return f"replica-{uuid.uuid4()}"
    raise ConfigError(
        f"a replica of {world_size} ranks without a replica_id",
        "the same name at all of them",
        "pass replica_id=",
    )


def _incarnation_of(options: ManagerOptions, rank: int, world_size: int) -> int:
    """Return a number that grows with each start, the same at every rank of the replica."""
    if "incarnation" in options:
        return options["incarnation"]
    started = torch.tensor([int(time_of_day() * 1000)])
    if world_size == 1:
        return int(started)
    if not dist.is_initialized() or dist.get_world_size() != world_size:
        raise ConfigError(
            f"a replica of {world_size} ranks that are in no process group of theirs",
            "the same incarnation at all of them, larger at each start of the replica",
            "pass incarnation=, or call torch.distributed.init_process_group first",
        )
    dist.broadcast(started, src=0)
    return int(started)


def _service_of(options: ManagerOptions) -> tuple[list[Address], Path]:
    """Return where the quorum service may be and which file holds the secret."""
    secret = options.get("secret_path")
    if (folder := options.get("folder")) is not None:
        files = RunFiles.prepare(folder)
        return [Address.parse(files.service_address)], Path(secret or files.secret)
    given = options.get("lighthouse_addr", "")
    if not given:
        raise ConfigError(
            "Manager was told of no lighthouse",
            "where the quorum service listens; no variable of the environment is read",
            "pass lighthouse_addr= (tcp:host:port) and secret_path=, or folder= on one machine",
        )
    addresses = [read_address(each) for each in given.split(",")]
    if secret is None and addresses[0].scheme == "unix":
        secret = Path(addresses[0].path).parent / _SECRET_NAME
    if secret is None:
        raise ConfigError(
            f"Manager has no secret to show at {given}",
            "the file (0600) that the lighthouse was started with",
            "pass secret_path=",
        )
    return addresses, Path(secret)


def read_address(text: str) -> Address:
    """Return the address that ``text`` spells; TorchFT's way of spelling it is fine too."""
    web = re.fullmatch(r"(?:https?://)?([^/]+:\d+)/?", text)
    return Address.parse(f"tcp:{web[1]}" if web and not text.startswith("tcp:") else text)


def _data_address(options: ManagerOptions, service: Address, name: str) -> str:
    """Return where this process listens for its peers."""
    if service.scheme == "unix" and "hostname" not in options:
        plain = re.sub(r"[^\w.-]", "_", name)
        return f"unix:{Path(service.path).parent / plain}.sock"
    host = options.get("hostname") or _near(service)
    bracketed = f"[{host}]" if ":" in host else host
    return f"tcp:{bracketed}:{options.get('port', 0)}"


def _near(service: Address) -> str:
    """Return all addresses of this host, or loopback where all processes are on it."""
    if service.is_loopback:
        return "::1" if ":" in service.host else "127.0.0.1"
    found = socket.getaddrinfo(service.host, service.port, type=socket.SOCK_STREAM)
    return _ALL_IPV6 if found[0][0] == socket.AF_INET6 else _ALL_IPV4


def limit_of(options: ManagerOptions) -> float:
    """Return how long an exchange may take, in seconds."""
    return seconds_of(options.get("timeout", 60.0))
