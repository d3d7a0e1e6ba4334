"""What a host agent lays down in its folders for its workers, and clears away."""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec

from danaus.actor.agent_messages import AgentSettings
from danaus.core.whole_file import WholeFile
from danaus.wire.position import PositionBlock

_ADDRESS = "address"


def keep_address(folder: str, address: str) -> None:
    """Lay down where the agent listens, for those who look for it on this machine."""
    with contextlib.suppress(OSError):  # a full disk must not end a host
        WholeFile(Path(folder) / _ADDRESS, durable=False).write(address.encode())


def kept_address(folder: str) -> str:
    """Return where the agent of a folder listens; empty: it has not said so."""
    try:
        return WholeFile(Path(folder) / _ADDRESS).read().decode()
    except (OSError, UnicodeDecodeError):
        return ""


def remove_leftovers(settings: AgentSettings) -> None:
    """Remove the files of workers that ended with an earlier agent of this host."""
    left = [
        Path(settings.folder) / _ADDRESS,
        *Path(settings.folder).glob("*.position"),
        *Path(settings.folder).glob("*.bootstrap"),
        *Path(settings.sockets).glob(f"{settings.host}-w*-*"),
    ]
    for path in left:
        with contextlib.suppress(OSError):
            path.unlink()


def new_block(path: str) -> tuple[PositionBlock, str]:
    """Return a block and where a worker opens it: at ``path``, unless the disk is full.

    Raises:
        OSError: It is, and this system has no other place.
    """
    try:
        return PositionBlock.create(path), path
    except OSError as full:
        try:
            block = PositionBlock.create_in_memory()
        except OSError:
            raise full from None
        return block, block.path


def keep_bootstrap(folder: str, name: str, parts: tuple[bytes, ...]) -> str:
    """Lay down what a worker calls first, and return where; its nursery's messages are short.

    Raises:
        OSError: The disk is full.
    """
    if not parts:
        return ""
    path = Path(folder) / f"{name}.bootstrap"
    WholeFile(path, durable=False).write(msgspec.msgpack.encode(parts))
    return str(path)
