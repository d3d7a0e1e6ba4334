"""Finding what a test leaves behind: processes, threads and descriptors.

Owns ``LeakCheck``: a look before, a look after, and a list of what is there that was not.
Processes are found as descendants of this one and, for those that have left the family (a daemon,
an orphan), by a mark in their environment.  Linux only: it reads ``/proc``.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from danaus.core.clock import Deadline
from danaus.core.process_descriptor import open_process

MARK = "DANAUS_LEAK_CHECK"
"""The environment variable by which started processes are recognised."""

_PROC = Path("/proc")
_POLL_S = 0.01
# A timeout's own watchdog, and what a process needs once and keeps.
_HARMLESS_THREADS = ("pytest_timeout", "MainThread")
_HARMLESS_FILES = ("/dev/urandom", "/dev/null", "/dev/shm/", "/proc/")


@dataclass(frozen=True, slots=True)
class _Seen:
    processes: frozenset[int]
    threads: frozenset[int]
    files: frozenset[tuple[int, str]]


class LeakCheck:
    """Compares what is there now with what was there at the start.

    Args:
        mark: A value of ``MARK`` that no other process has; the caller puts it into the
            environment for as long as the check lasts.
    """

    def __init__(self, mark: str) -> None:
        self._mark = f"{MARK}={mark}".encode()
        self._before = self._look()

    def leaks(self, grace_s: float) -> list[str]:
        """Return a line for each thing left behind, after up to ``grace_s`` for it to go."""
        deadline = Deadline.after(grace_s)
        for pid in self._look().processes - self._before.processes:
            _wait_for_exit(pid, deadline)
        for thread in self._new_threads():
            thread.join(deadline.remaining_s())
        while self._new_files() and not deadline.passed:
            gc.collect()
            threading.Event().wait(_POLL_S)
        return [
            *(f"process {pid}: {_command(pid)}" for pid in self.processes()),
            *(f"thread {thread.name}" for thread in self._new_threads()),
            *(f"descriptor {number}: {target}" for number, target in self._new_files()),
        ]

    def processes(self) -> list[int]:
        """Return the processes that were not there at the start."""
        return sorted(self._look().processes - self._before.processes)

    def kill(self) -> None:
        """Kill the processes that were left behind, so that they disturb nobody else."""
        for pid in self.processes():
            try:
                os.kill(pid, signal.SIGKILL)
                _wait_for_exit(pid, Deadline.after(2.0))
                os.waitpid(pid, os.WNOHANG)
            except (ProcessLookupError, ChildProcessError, PermissionError):
                continue

    def _look(self) -> _Seen:
        return _Seen(
            frozenset(_family(os.getpid())) | frozenset(_marked(self._mark)),
            frozenset(thread.ident or 0 for thread in threading.enumerate()),
            frozenset(_open_files()),
        )

    def _new_threads(self) -> list[threading.Thread]:
        return [
            thread
            for thread in threading.enumerate()
            if thread.ident not in self._before.threads
            and not thread.name.startswith(_HARMLESS_THREADS)
        ]

    def _new_files(self) -> list[tuple[int, str]]:
        return sorted(
            (number, target)
            for number, target in set(_open_files()) - self._before.files
            if not target.startswith(_HARMLESS_FILES)
        )


def _pids() -> Iterator[int]:
    return (int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit())


def _family(ancestor: int) -> Iterator[int]:
    children: dict[int, list[int]] = {}
    for pid in _pids():
        children.setdefault(_parent(pid), []).append(pid)
    generation = children.get(ancestor, [])
    while generation:
        yield from generation
        generation = [child for pid in generation for child in children.get(pid, [])]


def _parent(pid: int) -> int:
    try:
        return int((_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()[1])
    except (OSError, IndexError):
        return 0


def _marked(mark: bytes) -> Iterator[int]:
    for pid in _pids():
        try:
            environment = (_PROC / str(pid) / "environ").read_bytes()
        except OSError:
            continue
        if pid != os.getpid() and mark in environment.split(b"\0"):
            yield pid


def _command(pid: int) -> str:
    try:
        words = (_PROC / str(pid) / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return "gone meanwhile"
    return b" ".join(words).decode(errors="replace").strip() or "ended, but nobody has reaped it"


def _open_files() -> Iterator[tuple[int, str]]:
    for entry in (_PROC / "self" / "fd").iterdir():
        try:
            yield int(entry.name), os.readlink(entry)
        except OSError:
            continue  # the descriptor that lists them


def _wait_for_exit(pid: int, deadline: Deadline) -> None:
    try:
        descriptor = open_process(pid)
    except OSError:
        return
    try:
        select.select([descriptor], [], [], deadline.remaining_s())
    finally:
        os.close(descriptor)
