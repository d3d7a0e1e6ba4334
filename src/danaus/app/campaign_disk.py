"""The disk of a campaign's run: one of its own and small, so that it can be filled.

Owns ``small_disk`` and what this machine lacks for a campaign.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from danaus.app.campaign_mix import DISK, FREEZER, NETWORK, ROOT
from danaus.core.errors import ConfigError

_SIZE_MIB = 512
_CGROUPS = Path("/sys/fs/cgroup")


def lacking(num_hosts: int = 0) -> frozenset[str]:
    """Return what this machine does not have of what faults need.

    Args:
        num_hosts: Hosts of a lab that the campaign is given.
    """
    memory = _CGROUPS / "memory" if (_CGROUPS / "memory").is_dir() else _CGROUPS
    found = {
        ROOT: _is_root() and os.access(memory, os.W_OK),
        FREEZER: _is_root() and os.access(_CGROUPS / "freezer", os.W_OK),
        DISK: _is_root() and shutil.which("mount") is not None,
        NETWORK: num_hosts > 0,
    }
    return frozenset(name for name, there in found.items() if not there)


def _is_root() -> bool:
    return os.geteuid() == 0


@contextlib.contextmanager
def small_disk(parent: Path, name: str, *, wanted: bool) -> Iterator[Path]:
    """Give a folder for a run: ``parent/name``, on a disk of its own until the context ends.

    Args:
        parent: A folder that exists.
        name: The run's.
        wanted: Whether that disk is to be its own.

    Raises:
        ConfigError: A campaign that was killed has left its disk there.
    """
    disk = parent / "disk"
    if not wanted or not _mounted(disk):
        yield parent / name
        return
    with contextlib.ExitStack() as undo:
        undo.callback(disk.rmdir)
        undo.callback(subprocess.run, ["umount", "-l", str(disk)], check=False, capture_output=True)
        try:
            yield disk / name
        finally:
            if (disk / name).exists():
                shutil.copytree(disk / name, parent / name, symlinks=True, ignore=_sockets)


def _mounted(disk: Path) -> bool:
    try:
        disk.mkdir(mode=0o700)
    except FileExistsError as error:
        raise ConfigError(
            f"{disk} is there: a campaign that was killed has left its disk",
            to_do=f"umount {disk} and remove it, or choose another folder with --run-dir",
        ) from error
    command = ["mount", "-t", "tmpfs", "-o", f"size={_SIZE_MIB}m,mode=0700", "danaus", str(disk)]
    done = subprocess.run(command, check=False, capture_output=True)
    if done.returncode:
        disk.rmdir()
    return not done.returncode


def _sockets(folder: str, names: list[str]) -> set[str]:
    return {name for name in names if (Path(folder) / name).is_socket()}
