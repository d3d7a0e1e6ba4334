"""``danaus lab``: many hosts on this machine, to be joined, cut, slowed and crashed."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from danaus.app.lab import Lab, host_agent
from danaus.app.lab_folder import LABS, labs_there
from danaus.app.lab_plan import LabPlan, Link
from danaus.app.lab_tools import check_ground
from danaus.cli.arguments import Given, build, read, wants_help
from danaus.core.errors import ConfigError

_HELP = """\
danaus lab makes many hosts on this machine: each with its own addresses (IPv4 and IPv6), host name
and processes, joined by a switch that this machine is joined to as well, as 'controller'.  What
happens to their network is real: frames vanish, connections stall and go on once it is mended.
It needs root, and Debian's iproute2 and nftables.

  danaus lab up [--hosts 4] [--networks 1]    build it; twice is as good as once
                [--agent COMMAND] [--port 7200] [--ipv6]
  danaus lab status                           addresses, who is up, what is cut, what was dropped
  danaus lab cut NODE [NODE] [--one-way]      drop all frames between two, or between one and all;
                                              one way: only those that the first one sends
  danaus lab link NODE [--delay-ms 20]        make the way between a node and the switch slow
                [--jitter-ms 5]               or lossy, in each direction; without options: perfect
                [--loss 0.01] [--rate-mbit 10]
  danaus lab heal [NODE [NODE]]               mend cuts: between two, of one, or all; all links too
  danaus lab crash HOST                       end all its processes at once; it falls silent
  danaus lab start HOST                       start it after a crash, or its agent after its end
  danaus lab run HOST [--] COMMAND ...        run a command inside a host
  danaus lab down                             take it down; nothing is left

  --name NAME    which lab, in each of these (default: lab); several stand side by side
  --agent        what each host runs instead of danaus host; 'none' is nothing; {listen}, {address},
                 {port}, {name}, {secret} and {run_dir} in it are filled in, and with {listen} or
                 {port} up waits until that is open

status prints the hosts and the file of their secret as danaus train takes them:

  danaus train debug --hosts tcp:198.18.1.11:7200,... --secret /run/danaus/labs/lab/secret

Delays and rates are the kernel's (netem, tbf) where it has them, and a relay process's elsewhere.
"""


@dataclass(frozen=True)
class _Named:
    name: str = "lab"


@dataclass(frozen=True)
class _Up(_Named):
    hosts: int = 4
    networks: int = 1
    agent: str = ""
    port: int = 7200
    ipv6: bool = False


@dataclass(frozen=True)
class _Status:
    name: str = ""


@dataclass(frozen=True, kw_only=True)
class _Two(_Named):
    node: str = ""
    other: str = ""


@dataclass(frozen=True, kw_only=True)
class _Cut(_Two):
    one_way: bool = False


@dataclass(frozen=True, kw_only=True)
class _Link(_Named):
    node: str
    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    loss: float = 0.0
    rate_mbit: float = 0.0


@dataclass(frozen=True, kw_only=True)
class _Host(_Named):
    host: str


def run(arguments: list[str]) -> int:
    """Do one thing to a lab; return the exit code."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_HELP, end="")
        return 0
    name, rest = arguments[0], arguments[1:]
    if name not in _COMMANDS:
        there = ", ".join(_COMMANDS)
        raise ConfigError(f"danaus lab cannot {name!r}", to_do=f"there is {there}")
    if wants_help(rest[:1] if name == "run" else rest):  # the rest of run is another's
        print(_HELP, end="")
        return 0
    check_ground()
    return _COMMANDS[name](rest)


def _up(arguments: list[str]) -> int:
    asked = build(_Up, read(arguments, _Up, "lab up"), (), "lab up")
    plan = LabPlan(
        asked.name,
        num_hosts=asked.hosts,
        num_networks=asked.networks,
        port=asked.port,
        ipv6=asked.ipv6,
    )
    lab = Lab(asked.name)
    if not lab.up(plan, _agent(asked.agent)):
        print(f"lab {asked.name} is up already")
    print(*lab.status().lines(), sep="\n")
    return 0


def _agent(text: str) -> tuple[str, ...]:
    """Return the command of each host; ``none`` is no command."""
    if not text:
        return host_agent()
    try:
        return () if text == "none" else tuple(shlex.split(text))
    except ValueError as error:
        raise ConfigError(f"--agent {text!r} is no command", str(error)) from error


def _down(arguments: list[str]) -> int:
    asked = build(_Named, read(arguments, _Named, "lab down"), (), "lab down")
    was_there = Lab(asked.name).down()
    print(f"lab {asked.name} is {'down' if was_there else 'not there, nothing to take down'}")
    return 0


def _status(arguments: list[str]) -> int:
    asked = build(_Status, read(arguments, _Status, "lab status"), (), "lab status")
    names = [asked.name] if asked.name else labs_there(LABS)
    for name in names:
        try:
            print(*Lab(name).status().lines(), sep="\n")
        except ConfigError as error:
            if asked.name:
                raise
            print(f"lab {name}: {error}")  # the others' are told all the same
    if not names:
        print("no lab is up; danaus lab up --hosts 4 makes one")
    return 0


def _cut(arguments: list[str]) -> int:
    asked = _some(_Cut, read(arguments, _Cut, "lab cut"), "lab cut")
    if not asked.node:
        raise ConfigError("NODE is missing", "danaus lab cut takes NODE [NODE]")
    Lab(asked.name).cut(asked.node, asked.other or None, one_way=asked.one_way)
    arrow = "does not reach" if asked.one_way else "is cut off from"
    print(f"{asked.node} {arrow} {asked.other or 'everybody'}")
    return 0


def _heal(arguments: list[str]) -> int:
    asked = _some(_Two, read(arguments, _Two, "lab heal"), "lab heal")
    Lab(asked.name).heal(asked.node or None, asked.other or None)
    print(
        f"mended: {' and '.join(filter(None, (asked.node, asked.other))) or 'all cuts and links'}"
    )
    return 0


def _link(arguments: list[str]) -> int:
    asked = build(_Link, read(arguments, _Link, "lab link"), ("node",), "lab link")
    for option, value in (("--delay-ms", asked.delay_ms), ("--jitter-ms", asked.jitter_ms)):
        if not value >= 0:
            raise ConfigError(f"{option} is {value:g}", "it must not be below 0")
    link = Link(
        delay_s=asked.delay_ms / 1000,
        jitter_s=asked.jitter_ms / 1000,
        loss=asked.loss,
        rate_mbit=asked.rate_mbit,
    )
    Lab(asked.name).link(asked.node, link)
    print(f"the link of {asked.node}: {link or 'perfect'}")
    return 0


def _crash(arguments: list[str]) -> int:
    asked = build(_Host, read(arguments, _Host, "lab crash"), ("host",), "lab crash")
    Lab(asked.name).crash(asked.host)
    print(f"{asked.host} has crashed; danaus lab start {asked.host} brings it back")
    return 0


def _start(arguments: list[str]) -> int:
    asked = build(_Host, read(arguments, _Host, "lab start"), ("host",), "lab start")
    Lab(asked.name).start(asked.host)
    print(f"{asked.host} is up")
    return 0


def _run(arguments: list[str]) -> int:
    """Run a command inside a host; the options before HOST are ours."""
    own = 0
    while own < len(arguments) and arguments[own].startswith("--name"):
        own += 1 if "=" in arguments[own] else 2
    asked = build(_Host, read(arguments[: own + 1], _Host, "lab run"), ("host",), "lab run")
    command = arguments[own + 1 :]
    command = command[1:] if command[:1] == ["--"] else command
    if not command:
        raise ConfigError("COMMAND is missing", "danaus lab run takes HOST COMMAND ...")
    sys.stdout.flush()
    try:
        code: int = Lab(asked.name).popen(asked.host, command).wait()
    except FileNotFoundError as error:
        raise ConfigError(f"{command[0]} cannot be run", str(error.strerror)) from error
    return code if code >= 0 else 128 - code


def _some(cls: type[Any], given: Given, command: str) -> Any:
    """Return settings with as many of NODE and NODE as were given."""
    return build(cls, given, ("node", "other")[: len(given.values)], command)


_COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "up": _up,
    "down": _down,
    "status": _status,
    "cut": _cut,
    "link": _link,
    "heal": _heal,
    "crash": _crash,
    "start": _start,
    "run": _run,
}
