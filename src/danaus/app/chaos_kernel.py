"""What the kernel does to a worker that asks for it, and what is undone from outside.

Owns ``stop``, ``freeze``, ``limit_memory`` and ``fill_disk``, and who undoes them: a small shell
beside the worker, since the worker itself is dead or cannot run by then.  It ends with the worker
or with its host agent, so that nothing of a fault outlives the run (P-4).
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

from danaus.core.errors import ConfigError
from danaus.core.proc_root import stat_fields

MOST_DISK_BYTES = 1 << 30
"""A disk with more room than this is never filled: it is not the run's alone."""

_CGROUPS = Path("/sys/fs/cgroup")
_LIFETIME_S = 3600.0
_WAIT = """
left=$3
while [ "$left" -gt 0 ] && kill -0 "$1" 2>/dev/null && kill -0 "$2" 2>/dev/null; do
    sleep 0.1; left=$((left - 1))
done
"""
_THAW = _WAIT + 'echo THAWED > "$4/freezer.state"\necho "$1" > "${4%/*}/cgroup.procs"\n'
_REMOVE = """
left=100
while [ "$left" -gt 0 ] && ! rmdir "$4" 2>/dev/null; do
    sleep 0.1; left=$((left - 1))
done
"""
_FREE = _WAIT + 'rm -f "$4"\n'
_undoers: list[subprocess.Popen[bytes]] = []


def limit_memory(num_bytes: int) -> None:
    """Let this process have so much more memory than it has; what asks for more is killed.

    Raises:
        ConfigError: This machine has no memory cgroup that this user may make.
    """
    v1 = _CGROUPS / "memory" / "cgroup.procs"
    group = _make_group(_CGROUPS / "memory" if v1.exists() else _CGROUPS, "memory")
    _undo(_WAIT + _REMOVE, group, _LIFETIME_S)
    # Of all processes that the kernel could end, it should think of this one.
    Path("/proc/self/oom_score_adj").write_text("1000")
    if v1.exists():
        # What it holds already stays charged to where it came from.
        _write(group / "memory.limit_in_bytes", str(num_bytes))
        swap = group / "memory.memsw.limit_in_bytes"
    else:
        _write(group / "memory.max", str(num_bytes))
        swap = group / "memory.swap.max"
    if swap.exists():
        _write(swap, str(num_bytes if v1.exists() else 0))
    _write(group / "cgroup.procs", str(os.getpid()))


def stop(for_s: float | None) -> None:
    """Send this process SIGSTOP; it goes on after so long, if that is given."""
    if for_s is not None:
        _undo(_WAIT + 'kill -CONT "$1"\n', Path("/"), for_s)
    os.kill(os.getpid(), signal.SIGSTOP)


def freeze(for_s: float, say: Callable[[], object]) -> None:
    """Stop this process so that not even SIGKILL ends it, until ``for_s`` has passed.

    That is how a process looks that waits for a device in the kernel.  ``say`` is called just
    before.

    Raises:
        ConfigError: This machine has no freezer (cgroup v1; that of v2 lets a kill through).
    """
    group = _make_group(_CGROUPS / "freezer", "freezer")
    _undo(_THAW + _REMOVE, group, for_s)
    _write(group / "cgroup.procs", str(os.getpid()))
    say()
    _write(group / "freezer.state", "FROZEN")


def fill_disk(folder: Path, for_s: float, say: Callable[[], object]) -> None:
    """Leave no byte free where ``folder`` lies, for a while; ``say`` is called just before.

    Raises:
        ConfigError: That disk is too large to be the run's alone.
    """
    room = os.statvfs(folder)
    size_bytes = room.f_blocks * room.f_frsize
    if size_bytes > MOST_DISK_BYTES:
        raise ConfigError(
            f"{folder} lies on a disk of {size_bytes >> 20} MiB, which is not filled",
            f"a file system of its own, of {MOST_DISK_BYTES >> 20} MiB at most",
            "start the run in a folder of its own: mount -t tmpfs -o size=64m none FOLDER",
        )
    filler = folder / f".filler-{os.getpid()}"
    _undo(_FREE, filler, for_s)
    say()
    fill(filler)


def fill(filler: Path) -> None:
    """Write a file until its disk has not a byte left."""
    with filler.open("wb", buffering=0) as file:
        for block in (bytes(1 << 16), b"\0"):
            try:
                while file.write(block):
                    pass
            except OSError:
                continue  # no room for this much any more


def _make_group(parent: Path, controller: str) -> Path:
    group = parent / f"danaus-fault-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        raise ConfigError(
            f"a cgroup of {controller} cannot be made in {parent}: {error.strerror}",
            "root, on a machine with cgroups that may be written",
        ) from error
    return group


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be set: {error.strerror}", "root, and a kernel that has it"
        ) from error


def _undo(script: str, target: Path, after_s: float) -> None:
    """Start what undoes a fault: once so long has passed, or worker or host agent are gone."""
    tenths = max(1, round(after_s * 10))
    arguments = (str(os.getpid()), str(_agent_pid()), str(tenths), str(target))
    _undoers.append(
        subprocess.Popen(
            ("/bin/sh", "-c", script, "danaus-undo", *arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    )


def _agent_pid() -> int:
    """Return the host agent: the parent of the nursery that forked this worker."""
    return int(stat_fields(os.getppid())[1])
