"""The ``danaus`` command: which command is meant, and what becomes of its errors.

Owns the list of commands, the help, and exit codes:

    0    done                          2    the input cannot be used: one sentence says why
    1    it ran and failed             130  stopped by Ctrl-C (128 + its number: by a signal)

A command is a module of this room with ``run(arguments) -> exit code``; it is imported when it is
called, so that help is there at once and needs no torch.
"""

from __future__ import annotations

import difflib
import errno
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module

from danaus.core.errors import (
    ConfigError,
    DanausError,
    DependencyMissing,
    DeviceUnavailable,
    RunFolderBusy,
)
from danaus.core.patient_text import DISK_FULL

_BAD_INPUT = (ConfigError, DependencyMissing, DeviceUnavailable, RunFolderBusy)


@dataclass(frozen=True)
class Command:
    """Where a command lives, how it is called and what it does."""

    module: str
    usage: str
    about: str


COMMANDS = {
    "demo": Command(
        "demo", "[--OPTION VALUE ...]", "train a small Llama through real faults, to the same bits"
    ),
    "train": Command("train", "[PRESET] [--OPTION VALUE ...]", "train; without PRESET: list them"),
    "stop": Command("stop", "RUN", "end a run, also one without terminal or controller"),
    "stacks": Command("stacks", "RUN", "what every rank of a run is at, thread by thread"),
    "debug": Command("debug", "[RUN|PID]", "attach to an actor that stands at a breakpoint()"),
    "chaos": Command("chaos", "RUN FAULT ... | --list", "strike a run that goes on, on purpose"),
    "scale": Command("scale", "RUN --replicas N", "more replicas, or fewer, while a run goes on"),
    "drain": Command("drain", "RUN REPLICA|HOST", "have a replica or a host leave after its step"),
    "roll": Command("roll", "RUN", "restart a run's hosts one by one, with new code"),
    "compare": Command("compare", "RUN RUN", "two runs: same bits, or the first step that differs"),
    "report": Command("report", "RUN", "write a run's report: a page and a picture"),
    "ledger": Command("ledger", "verify RUN", "check that each sample was committed exactly once"),
    "bench": Command(
        "bench", "recovery | campaign | ft | actor | soak", "what things cost, measured here"
    ),
    "host": Command("host", "--listen ADDRESS", "let runs of several machines use this one"),
    "lighthouse": Command("lighthouse", "--run RUN", "decide who takes part in each step"),
    "lab": Command("lab", "up | cut | crash | down ...", "many hosts on this machine"),
    "doctor": Command("doctor", "", "what is installed here, and what is missing for what"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return the exit code."""
    asked = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = _dispatch(asked)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Whoever read our output has gone; nothing is left to be said to them.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except BaseExceptionGroup as group:
        return _failed_together(group)
    except DanausError as error:
        return _failed(error)
    except OSError as error:
        return _refused_by_the_machine(error)
    except Exception:
        return _broken()


def _dispatch(asked: list[str]) -> int:
    if not asked or asked[0] in ("-h", "--help", "help"):
        print(_help())
        return 0
    if asked[0] in ("-V", "--version"):
        print(f"danaus {_version()}")
        return 0
    name = asked[0]
    if name not in COMMANDS:
        near = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(COMMANDS)}"
        raise ConfigError(what=f"danaus has no command {name!r}", to_do=hint)
    command = import_module(f"danaus.cli.{COMMANDS[name].module}")
    code: int = command.run(asked[1:])
    return code


def _version() -> str:
    from importlib import metadata

    try:
        return metadata.version("danaus")
    except metadata.PackageNotFoundError:
        return "of a source tree that is not installed"


def _help() -> str:
    lines = [
        "danaus trains large models through failures.",
        "",
        *(f"  danaus {f'{n} {c.usage}':<36} {c.about}" for n, c in COMMANDS.items()),
        "",
        "danaus COMMAND --help lists a command's options.",
    ]
    return "\n".join(lines)


def _failed(error: DanausError) -> int:
    """Say what failed; bad input is said in one line."""
    if isinstance(error, _BAD_INPUT):
        _say(" ".join(str(error).split()))
        return 2
    _say(str(error))
    return 1


def _failed_together(group: BaseExceptionGroup[BaseException]) -> int:
    """Say each thing that failed in a group, once."""
    leaves = list(_leaves(group))
    if any(isinstance(leaf, KeyboardInterrupt) for leaf in leaves):
        return 130
    if not all(isinstance(leaf, DanausError) for leaf in leaves):
        return _broken()
    said = {str(leaf): leaf for leaf in leaves if isinstance(leaf, DanausError)}
    return max(_failed(leaf) for leaf in said.values())


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    found: list[BaseException] = []
    for error in group.exceptions:
        found += _leaves(error) if isinstance(error, BaseExceptionGroup) else [error]
    return found


def _refused_by_the_machine(error: OSError) -> int:
    """Say what the machine would not do, and where; any other error of its is our mistake."""
    to_do = _MACHINE.get(error.errno or 0)
    if to_do is None:
        return _broken()
    if error.filename is None and error.errno in DISK_FULL:
        # Standard output, most likely; Python would complain of it once more on leaving.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    where = "what it had to write" if error.filename is None else os.fsdecode(error.filename)
    _say(f"{where}: {error.strerror}; {to_do}")
    return 1


_MACHINE = {
    errno.EACCES: "name another path, or see to it that it may be used",
    errno.EPERM: "name another path, or see to it that it may be used",
    errno.EROFS: "name another path",
    errno.EISDIR: "name another path, or move that folder away",
    errno.ENOTDIR: "name another path",
    errno.ENOSPC: "make room on the disk",
    errno.EDQUOT: "make room in your quota",
    errno.EMFILE: "let a process open more files (ulimit -n)",
    errno.ENFILE: "the whole machine has too many open files",
}


def _broken() -> int:
    """Show a mistake of our own in full."""
    import traceback

    traceback.print_exc()
    _say("this is a mistake in danaus; please report it with the lines above")
    return 1


def _say(words: str) -> None:
    print(f"danaus: {words}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
