"""One node of a lab as seen from outside: the switch or a host, by its folder.

Owns starting, finding, telling and killing a node's first process (``lab_init``), and what its
files say.  A node is known by pid and start time, so that a file that is left over never points at
a stranger.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from danaus.actor.boot import command
from danaus.actor.procfs import kill_exactly, pid_here, read_stat
from danaus.app.lab_init import DETACH, Known, boot_id, write_whole
from danaus.app.lab_tools import place_of, until
from danaus.core.clock import Deadline
from danaus.core.errors import DeadlinePassed, SupervisionError
from danaus.core.process_descriptor import open_process

_START_S = 20.0
_KILL_S = 20.0
_TAIL_LINES = 8


class Node:
    """The switch or a host of a lab.

    Args:
        folder: Where its files are; it exists.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.name = folder.name
        self._lifeline: int | None = None
        self._starter: subprocess.Popen[bytes] | None = None

    # -- its life --------------------------------------------------------------------------

    def begin(self, hosts_file: Path | None = None) -> None:
        """Start its first process, without waiting for it: ``wait_started`` does."""
        for name in ("pid", "running.json", "wanted.json"):
            (self.folder / name).unlink(missing_ok=True)
        more = () if hosts_file is None else (str(hosts_file),)
        read_fd, self._lifeline = os.pipe()
        try:
            with (self.folder / "log").open("ab") as log:
                self._starter = subprocess.Popen(
                    command("danaus.app.lab_init", str(self.folder), self.name, *more),
                    stdin=read_fd,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
        finally:
            os.close(read_fd)

    def wait_started(self) -> None:
        """Wait until it can be told what to run.

        Raises:
            SupervisionError: It ended instead.
            DeadlinePassed: It takes too long.
        """
        deadline = Deadline.after(_START_S)
        starter, self._starter = self._starter, None
        if starter is not None:
            self._wait_for_starter(starter, deadline)

        def serves_or_ended() -> bool:
            return (self.folder / "running.json").exists() or self.pid is None

        until(serves_or_ended, deadline, f"{self.name} to start")
        if self.pid is None:
            raise self._gone("it ended while it was started")

    def _wait_for_starter(self, starter: subprocess.Popen[bytes], deadline: Deadline) -> None:
        try:
            code = starter.wait(deadline.remaining_s())
        except subprocess.TimeoutExpired as error:
            starter.kill()
            starter.wait()
            raise DeadlinePassed(f"{self.name} to start", deadline.limit_s) from error
        if code:
            raise self._gone("its namespaces could not be made")

    def detach(self) -> None:
        """Let it live on when this process has ended."""
        if self._lifeline is not None:
            try:
                os.write(self._lifeline, DETACH)
            except BrokenPipeError:
                pass  # it has been killed meanwhile
        self.let_go()

    def let_go(self) -> None:
        """Close the lifeline: unless it was detached, it ends."""
        if self._lifeline is not None:
            os.close(self._lifeline)
            self._lifeline = None
        if self._starter is not None:
            self._starter.kill()
            self._starter.wait()
            self._starter = None

    def kill(self) -> None:
        """End it and every process in it, at once; wait until they are gone.

        Raises:
            DeadlinePassed: They would not go.
        """
        found = self._find()
        if found is not None:
            descriptor = _descriptor(found[0])
            try:
                if kill_exactly(*found) and descriptor is not None:
                    poll = select.poll()
                    poll.register(descriptor, select.POLLIN)
                    if not poll.poll(_KILL_S * 1000):
                        raise DeadlinePassed(f"{self.name} to end after SIGKILL", _KILL_S)
            finally:
                if descriptor is not None:
                    os.close(descriptor)
        self.let_go()

    @property
    def pid(self) -> int | None:
        """The pid of its first process, None if it is not alive."""
        found = self._find()
        return None if found is None else found[0]

    def _find(self) -> tuple[int, int] | None:
        try:
            pid, started, boot = (self.folder / "pid").read_text().split()
        except (OSError, ValueError):
            return None
        if boot != boot_id():
            return None  # of before this machine was started again
        return _if_alive(int(pid), int(started))

    def living_pid(self) -> int:
        """Return the pid of its first process.

        Raises:
            SupervisionError: It is not alive.
        """
        pid = self.pid
        if pid is None:
            raise self._gone("its first process has ended")
        return pid

    # -- what it runs ----------------------------------------------------------------------

    def want(self, processes: Mapping[str, tuple[str, ...]]) -> None:
        """Tell it what to run, and wait until it has done what that takes.

        What runs already with the same command goes on; what has ended is started again.

        Raises:
            SupervisionError: It is not alive.
            DeadlinePassed: It does not answer.
        """
        pid = self.living_pid()
        generation = self._read("running.json").get("generation", 0) + 1
        wanted = {"generation": generation, "processes": processes}
        write_whole(self.folder / "wanted.json", json.dumps(wanted))
        os.kill(pid, signal.SIGHUP)

        def followed_or_ended() -> bool:
            return self._read("running.json").get("generation") == generation or self.pid is None

        until(followed_or_ended, Deadline.after(_START_S), f"{self.name} to start its processes")
        self.living_pid()

    def running(self) -> dict[str, Known]:
        """Return the processes that it runs or ran, by name."""
        found = self._read("running.json").get("processes", {})
        return {name: Known(**facts) for name, facts in found.items()}

    def pid_of(self, name: str) -> int | None:
        """Return the pid, as seen from outside, of a process that it runs; None if it does not."""
        known, first = self.running().get(name), self.pid
        if known is None or known.ended or first is None:
            return None
        return pid_here(known.pid, first)

    def log_tail(self) -> tuple[str, ...]:
        """Return the last lines that it and its processes wrote."""
        try:
            text = (self.folder / "log").read_text(errors="replace")
        except OSError:
            return ()
        return tuple(text.splitlines()[-_TAIL_LINES:])

    def listens(self, port: int) -> bool:
        """Tell whether one of its processes accepts connections at ``port``."""
        pid = self.pid
        tables = [] if pid is None else [f"/proc/{pid}/net/tcp", f"/proc/{pid}/net/tcp6"]
        return any(port in listening_ports(Path(table)) for table in tables)

    def enter(self) -> list[str]:
        """Return the start of a command that runs inside the node."""
        target = f"--target={self.living_pid()}"
        return [place_of("nsenter"), target, "--mount", "--uts", "--ipc", "--net", "--pid"]

    def _read(self, name: str) -> dict[str, Any]:
        try:
            read: dict[str, Any] = json.loads((self.folder / name).read_text())
            return read
        except FileNotFoundError:
            return {}

    def _gone(self, why: str) -> SupervisionError:
        return SupervisionError(self.name, why, log_tail=self.log_tail())


def listening_ports(table: Path) -> set[int]:
    """Return the ports that are listened at, from a file like ``/proc/net/tcp``."""
    try:
        lines = table.read_text().splitlines()[1:]
    except OSError:
        return set()
    fields = [line.split() for line in lines]
    return {int(each[1].rpartition(":")[2], 16) for each in fields if each[3] == "0A"}


def kill_strays(lab: Path) -> bool:
    """End first processes of a lab's nodes that no file names yet or any more.

    Returns:
        Whether there were any: one that is about to end may still start another.
    """
    mark = os.fsencode(lab) + b"/"
    found = False
    for entry in Path("/proc").glob("[0-9]*"):
        stat = read_stat(int(entry.name))
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        is_ours = any(b"danaus.app.lab_init" in word for word in words)
        if stat is not None and is_ours and any(word.startswith(mark) for word in words):
            found = True
            kill_exactly(stat.pid, stat.started)
    return found


def _if_alive(pid: int, started: int) -> tuple[int, int] | None:
    stat = read_stat(pid)
    alive = stat is not None and stat.started == started and not stat.is_zombie
    return (pid, started) if alive else None


def _descriptor(pid: int) -> int | None:
    try:
        return open_process(pid)
    except ProcessLookupError:
        return None
