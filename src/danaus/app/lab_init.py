"""The first process of a lab's host: it makes the host's namespaces, and the host ends with it.

Owns the namespaces (processes, network, host name, mounts) and the processes that run in them.
It starts what ``wanted.json`` in its folder names, whenever SIGHUP tells it to look, reaps all,
and writes into ``running.json`` what became of them.  It configures no network.  Killing it is the
crash of the host: the kernel ends everything in its namespaces.

Its standard input is a pipe: the host ends once nobody holds the other end, unless a ``d``
(detach) was read from it.  So half a lab goes away with the one who was building it.

Standard library only, so that a host is up in an instant.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Self

_CLONE_NEWNS, _CLONE_NEWUTS, _CLONE_NEWIPC = 0x00020000, 0x04000000, 0x08000000
_CLONE_NEWPID, _CLONE_NEWNET = 0x20000000, 0x40000000
_MS_BIND, _MS_REC, _MS_PRIVATE = 0x1000, 0x4000, 0x40000
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 0x2, 0x4, 0x8
DETACH = b"d"


@dataclass
class Known:
    """A process that the host runs or ran.

    Args:
        argv: Its command.
        pid: Its pid inside the host.
        ended: How it ended, in words; empty while it runs.
    """

    argv: list[str]
    pid: int = 0
    ended: str = ""


class Processes:
    """The processes of one host: those that are wanted, and what became of them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._generation = -1
        self._known: dict[str, Known] = {}
        self._held: dict[str, subprocess.Popen[bytes]] = {}

    def look(self) -> None:
        """Reap, start and end what has to be, and write down how things are."""
        self._reap()
        wanted = self._wanted()
        if wanted["generation"] != self._generation:
            self._generation = wanted["generation"]
            self._follow(wanted["processes"])
        state = {name: asdict(known) for name, known in self._known.items()}
        text = json.dumps({"generation": self._generation, "processes": state})
        # A full disk is no reason for a host to end; whoever waits for the file has a deadline.
        with contextlib.suppress(OSError):
            write_whole(self._folder / "running.json", text)

    def _wanted(self) -> dict[str, Any]:
        try:
            wanted: dict[str, Any] = json.loads((self._folder / "wanted.json").read_text())
            return wanted
        except FileNotFoundError:
            return {"generation": 0, "processes": {}}

    def _follow(self, wanted: dict[str, list[str]]) -> None:
        for name, known in list(self._known.items()):
            if wanted.get(name) != known.argv:
                self._end(name)
        for name, argv in wanted.items():
            if name not in self._known or self._known[name].ended:
                self._start(name, argv)

    def _start(self, name: str, argv: list[str]) -> None:
        try:
            # Held, as a Popen that is dropped warns; it is reaped with all the others.
            self._held[name] = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, start_new_session=True
            )
        except OSError as error:
            self._known[name] = Known(argv, ended=f"it cannot be started: {error}")
        else:
            self._known[name] = Known(argv, pid=self._held[name].pid)
        _say(f"{name}: {self._known[name].ended or 'started'}")

    def _end(self, name: str) -> None:
        known = self._known.pop(name)
        if not known.ended:
            os.killpg(known.pid, signal.SIGKILL)
            os.waitpid(known.pid, 0)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            for name, known in self._known.items():
                if known.pid == pid and not known.ended:
                    known.ended = _words(status)
                    _say(f"{name}: ended by {known.ended}")


class _Wakeups:
    """Signals as a descriptor that becomes readable."""

    def __init__(self) -> None:
        self.fd, self._write_fd = os.pipe()
        os.set_blocking(self.fd, False)
        os.set_blocking(self._write_fd, False)
        self.is_over = False
        signal.set_wakeup_fd(self._write_fd, warn_on_full_buffer=False)
        for number in (signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, self._nothing)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._end)

    @classmethod
    def armed(cls) -> Self:
        return cls()

    def drain(self) -> None:
        try:
            while os.read(self.fd, 512):
                pass
        except BlockingIOError:
            pass

    def _nothing(self, number: int, frame: FrameType | None) -> None:
        pass

    def _end(self, number: int, frame: FrameType | None) -> None:
        self.is_over = True


def serve(folder: Path) -> None:
    """Run the host until it is told to end, or nobody holds its standard input any more."""
    wakeups = _Wakeups.armed()
    processes = Processes(folder)
    processes.look()
    watched = [wakeups.fd, 0]
    while not wakeups.is_over:
        ready, _, _ = select.select(watched, [], [])
        if wakeups.fd in ready:
            wakeups.drain()
            processes.look()
        if 0 in ready:
            word = os.read(0, 16)
            if DETACH in word:
                watched.remove(0)
            elif not word:
                return


def enter(name: str, hosts_file: str) -> None:
    """Make this process, the first of its namespaces, at home in them."""
    # Not before the fork: whoever forked us looks us up in the machine's own /proc.
    _call("unshare", _CLONE_NEWNS)
    _mount("none", "/", flags=_MS_REC | _MS_PRIVATE)
    _mount("proc", "/proc", kind="proc", flags=_MS_NOSUID | _MS_NODEV | _MS_NOEXEC)
    if Path("/dev/shm").is_dir():
        # Memory that is shared on one host, and lost in its crash.
        _mount("shm", "/dev/shm", kind="tmpfs", flags=_MS_NOSUID | _MS_NODEV)
    if hosts_file and Path("/etc/hosts").exists():
        _mount(hosts_file, "/etc/hosts", flags=_MS_BIND)
    socket.sethostname(name)


def write_whole(path: Path, text: str) -> None:
    """Replace a file, so that a reader sees the old or the new one."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(text)
    draft.replace(path)


def start_time(pid: int) -> int:
    """Return when a process was started, in clock ticks since boot."""
    text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    return int(text.rpartition(")")[2].split()[19])


def boot_id() -> str:
    """Return which life of this machine this is."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def main() -> None:
    """Become host ``NAME`` with its things in ``FOLDER``: ``FOLDER NAME [HOSTS_FILE]``."""
    folder, name, hosts_file = Path(sys.argv[1]), sys.argv[2], [*sys.argv[3:], ""][0]
    os.chdir(folder)
    flags = _CLONE_NEWUTS | _CLONE_NEWIPC | _CLONE_NEWPID | _CLONE_NEWNET
    _call("unshare", flags)
    child = os.fork()
    if child:
        # Whoever started us waits for our end: from then on the host can be found.
        write_whole(folder / "pid", f"{child} {start_time(child)} {boot_id()}\n")
        return
    enter(name, hosts_file)
    serve(folder)


def _mount(source: str, target: str, *, kind: str | None = None, flags: int) -> None:
    words = [each.encode() if each is not None else None for each in (source, target, kind)]
    _call("mount", *words, ctypes.c_ulong(flags), None)


def _call(name: str, *arguments: Any) -> None:
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def _words(status: int) -> str:
    if os.WIFSIGNALED(status):
        return signal.Signals(os.WTERMSIG(status)).name
    return f"exit code {os.waitstatus_to_exitcode(status)}"


def _say(words: str) -> None:
    with contextlib.suppress(OSError):  # a full disk
        print(f"{time.strftime('%H:%M:%S')} {words}", flush=True)
