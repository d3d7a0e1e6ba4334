"""What a lab needs of this machine, and how its lines are carried out.

Owns the check of what is there and ``carry_out``: other programs' commands, each with a deadline
and with what they said if they failed.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from danaus.app.lab_links import KINDS
from danaus.app.lab_plan import Line
from danaus.core import proc_root
from danaus.core.clock import Deadline
from danaus.core.errors import ConfigError, DeadlinePassed, DependencyMissing

_NEEDED = {"ip": "iproute2", "tc": "iproute2", "nft": "nftables", "nsenter": "util-linux"}
_PLACES = "/usr/sbin:/usr/bin:/sbin:/bin"
_CAPABILITIES = {12: "CAP_NET_ADMIN", 21: "CAP_SYS_ADMIN"}
_LIMIT_S = 20.0
_POLL_S = 0.005


def check_ground() -> None:
    """Raise unless this machine can have a lab.

    Raises:
        ConfigError: It is no Linux, or we are not allowed to.
        DependencyMissing: A program is not installed.
    """
    what = "danaus lab makes network namespaces"
    if not proc_root.is_there():
        raise ConfigError(what, "it needs Linux", "use a virtual machine")
    if os.geteuid() != 0:
        raise ConfigError(what, "it needs root", "run it as root, or with sudo")
    if held_back := lacking(Path("/proc/self/status").read_text()):
        words = f"{' and '.join(held_back)}, which this root has not got"
        raise ConfigError(what, words, "use a machine of its own or a privileged container")
    for program, package in _NEEDED.items():
        if not place_of(program):
            raise DependencyMissing(program, "danaus lab", f"apt install {package}")


def missing() -> str:
    """Return in words why this machine can have no lab, nothing if it can."""
    try:
        check_ground()
    except (ConfigError, DependencyMissing) as error:
        return str(error)
    return ""


def lacking(status: str) -> list[str]:
    """Return the needed capabilities that ``/proc/self/status`` does not show as effective."""
    (line,) = (line for line in status.splitlines() if line.startswith("CapEff:"))
    held = int(line.split()[1], 16)
    return [name for bit, name in _CAPABILITIES.items() if not held >> bit & 1]


@functools.cache
def place_of(program: str) -> str:
    """Return where a program is, also where the PATH has no folder for administrators."""
    return shutil.which(program) or shutil.which(program, path=_PLACES) or ""


def carry_out(
    command: Sequence[str], *, pid: int | None = None, given: str = "", tolerant: bool = False
) -> str:
    """Run one of the programs that a lab needs; return what it printed.

    Args:
        command: The program and its arguments.
        pid: A process in whose network namespace it runs; None: in our own.
        given: What it reads from its standard input.
        tolerant: Whether it may fail.

    Raises:
        ConfigError: It failed: this machine cannot do it.
        DeadlinePassed: It did not end in time.
    """
    inside = () if pid is None else (place_of("nsenter"), f"--net=/proc/{pid}/ns/net")
    full = (*inside, place_of(command[0]), *command[1:])
    try:
        done = subprocess.run(
            full, input=given, capture_output=True, text=True, timeout=_LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise DeadlinePassed(" ".join(command), _LIMIT_S) from error
    if done.returncode and not tolerant:
        said = " ".join((done.stderr or done.stdout).split()) or f"exit code {done.returncode}"
        raise ConfigError(f"this machine cannot do what {command[0]} was asked for", said)
    return done.stdout


def carry_out_lines(
    lines: Iterable[Line], *, pid: int | None = None, tolerant: bool = False
) -> None:
    """Carry out lines of ``ip`` in one go; arguments as of ``carry_out``."""
    text = "".join(f"{' '.join(line)}\n" for line in lines)
    force = ("-force",) if tolerant else ()
    carry_out(("ip", *force, "-batch", "-"), pid=pid, given=text, tolerant=tolerant)


def kernel_kinds(pid: int) -> frozenset[str]:
    """Return which of ``lab_links.KINDS`` the kernel has.

    Args:
        pid: A process whose network namespace has a loopback device that may be tried on.
    """
    options = {
        "netem": ("delay", "1us"),
        "tbf": ("rate", "1gbit", "burst", "32kb", "latency", "1s"),
    }
    found = set()
    for kind in KINDS:
        try:
            carry_out(("tc", "qdisc", "add", "dev", "lo", "root", kind, *options[kind]), pid=pid)
        except ConfigError:
            continue
        carry_out(("tc", "qdisc", "del", "dev", "lo", "root"), pid=pid)
        found.add(kind)
    return frozenset(found)


def until(condition: Callable[[], bool], deadline: Deadline, waited_for: str) -> None:
    """Wait until ``condition`` holds.

    Raises:
        DeadlinePassed: It did not in time.
    """
    pause = threading.Event()
    while not condition():
        deadline.check(waited_for)
        pause.wait(_POLL_S)
