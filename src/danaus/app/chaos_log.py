"""The file of a campaign's record, in the run's folder.

Owns ``RecordFile`` and ``plan_again``; its lines are ``chaos_record``'s.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from pathlib import Path
from typing import Self

from danaus.app.chaos import FaultPlan
from danaus.app.chaos_record import replay
from danaus.app.run_folder import RunFolder
from danaus.core.errors import ConfigError


class RecordFile:
    """A new record: ``RUN/chaos/1.jsonl``, or the next number that is free.

    Args:
        folder: The run's.

    Attributes:
        path: Where it is.
        name: Of the campaign, unique in its run.

    Raises:
        ConfigError: It cannot be made.
    """

    def __init__(self, folder: RunFolder) -> None:
        parent = folder.path / "chaos"
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            parent.mkdir(mode=0o700, exist_ok=True)
            for number in itertools.count(1):
                path = parent / f"{number}.jsonl"
                try:
                    self._fd = os.open(path, flags, 0o600)
                except FileExistsError:
                    continue
                self.path, self.name = path, f"chaos{number}"
                self._unwritten = b""
                return
        except OSError as error:
            raise ConfigError(
                f"no record of faults can be made in {parent}", error.strerror or str(error)
            ) from error

    def write(self, line: str) -> None:
        """Append a line; what a full disk does not take is appended before the next one."""
        self._unwritten += line.encode()
        with contextlib.suppress(OSError):
            self._unwritten = self._unwritten[os.write(self._fd, self._unwritten) :]

    def close(self) -> None:
        """Close the file."""
        self.write("")
        os.close(self._fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_record(path: Path) -> list[str]:
    """Return the lines of a record.

    Raises:
        ConfigError: It cannot be read.
    """
    try:
        return path.read_text(errors="replace").splitlines()
    except OSError as error:
        raise ConfigError(f"record {path} cannot be read", error.strerror or str(error)) from error


def plan_again(path: Path) -> FaultPlan:
    """Return the plan that strikes again what a record tells of.

    Raises:
        ConfigError: It cannot be read, is no record, or nothing struck.
    """
    plan = replay(read_record(path))
    if not plan.faults:
        raise ConfigError(
            f"nothing struck in record {os.path.relpath(path)}", "a record of a fault that did"
        )
    return plan
