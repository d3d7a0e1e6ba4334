"""The folder of a lab: what shall be, for whoever comes next.

Owns the layout below and the lock: one command at a time changes a lab.

    LABS/NAME/                      0700
      state.json                    the lab as it shall be; written before anything is done
      secret                        0600, the hosts' secret
      hosts                         every host's /etc/hosts
      switch/  host1/  host2/ ...   a node each: pid, wanted.json, running.json, log, run/
"""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from danaus.app.lab_init import write_whole
from danaus.app.lab_plan import SWITCH, LabPlan, check_name, hosts_file, is_name
from danaus.core.clock import Deadline
from danaus.core.errors import ConfigError, DeadlinePassed
from danaus.core.file_lock import take_lock
from danaus.wire.secret import Secret

LABS = Path("/run/danaus/labs")
_LOCK_S = 60.0


@dataclass(frozen=True)
class LabState:
    """What a lab's folder says.

    Args:
        plan: The lab as it shall be.
        agent: The command of each host, with ``{address}``, ``{port}``, ``{name}``, ``{secret}``
            and ``{run_dir}`` left open; empty for none.
        is_complete: Whether it was up once.
        crashed: Hosts that were crashed on purpose.
        kernel: What the kernel can do to links (``lab_links.KINDS``).
    """

    plan: LabPlan
    agent: tuple[str, ...]
    is_complete: bool = False
    crashed: tuple[str, ...] = ()
    kernel: tuple[str, ...] = ()


class LabFolder:
    """A lab's folder.

    Args:
        name: The lab's name.
        labs: The folder of all labs.

    Raises:
        ConfigError: A lab cannot be called so.
    """

    def __init__(self, name: str, labs: Path = LABS) -> None:
        self.name = check_name(name)
        self.labs = labs.absolute()  # the hosts' processes work elsewhere
        self.path = self.labs / name

    @property
    def exists(self) -> bool:
        """Tell whether anything of the lab is there."""
        return self.path.is_dir()

    @property
    def secret_path(self) -> Path:
        return self.path / "secret"

    @property
    def hosts_path(self) -> Path:
        return self.path / "hosts"

    @contextmanager
    def held(self) -> Iterator[None]:
        """Be the one command that changes the lab; the folder is made if need be.

        Raises:
            DeadlinePassed: Another command holds it for long.
        """
        descriptor = self._lock(Deadline.after(_LOCK_S))
        try:
            yield
        finally:
            os.close(descriptor)

    def _lock(self, deadline: Deadline) -> int:
        while True:
            try:
                self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
                descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            except FileNotFoundError:
                continue  # a ``down`` removed it in between
            if self._locked(descriptor, deadline):
                return descriptor
            os.close(descriptor)

    def _locked(self, descriptor: int, deadline: Deadline) -> bool:
        """Take the lock; tell whether the folder is still the one that was opened."""
        try:
            if not take_lock(descriptor, limit_s=deadline.remaining_s()):
                raise DeadlinePassed(
                    f"another command to finish with lab {self.name}", deadline.limit_s
                )
            return os.path.samestat(os.fstat(descriptor), os.stat(self.path))
        except FileNotFoundError:
            return False
        except BaseException:
            os.close(descriptor)
            raise

    def make(self, plan: LabPlan) -> None:
        """Make what a new lab has in its folder."""
        self.path.chmod(0o700)
        self.secret_path.unlink(missing_ok=True)
        Secret.create(self.secret_path)
        for name in (SWITCH, *plan.hosts):
            (self.path / name).mkdir(mode=0o700)
        for name in plan.hosts:
            (self.path / name / "run").mkdir(mode=0o700)

    def write_hosts(self, plan: LabPlan) -> None:
        """Write what the hosts know each other by."""
        write_whole(self.hosts_path, hosts_file(plan))

    def node_names(self) -> list[str]:
        """Return the names of all nodes that have a folder."""
        return sorted(each.name for each in self.path.iterdir() if each.is_dir())

    def empty(self) -> None:
        """Remove what is in the folder, and keep the folder (and whoever holds it)."""
        for each in self.path.iterdir():
            if each.is_dir():
                shutil.rmtree(each)
            else:
                each.unlink()

    def read(self) -> LabState | None:
        """Return what the folder says, None where ``up`` did not come as far.

        Raises:
            ConfigError: It says nothing that makes sense.
        """
        path = self.path / "state.json"
        try:
            return msgspec.json.decode(path.read_bytes(), type=LabState)
        except FileNotFoundError:
            return None
        except msgspec.DecodeError as error:
            to_do = f"danaus lab down --name {self.name}"
            raise ConfigError(f"{path} cannot be read", str(error), to_do) from error

    def number(self) -> int | None:
        """Return the lab's number, None if it cannot be told any more."""
        try:
            state = self.read()
        except ConfigError:
            return None
        return None if state is None else state.plan.number

    def write(self, state: LabState) -> None:
        """Replace what the folder says."""
        write_whole(self.path / "state.json", msgspec.json.encode(state).decode())

    def remove(self) -> None:
        """Remove the folder, and the folders above it that were only there for labs."""
        shutil.rmtree(self.path)
        if self.labs == LABS:
            for parent in (LABS, LABS.parent):
                try:
                    parent.rmdir()
                except OSError:
                    return  # something else is in it


def labs_there(labs: Path = LABS) -> list[str]:
    """Return the names of all labs."""
    return sorted(filter(is_name, os.listdir(labs))) if labs.is_dir() else []


def changed(state: LabState, **plan: object) -> LabState:
    """Return the state with parts of its plan replaced."""
    new = dataclasses.replace(state.plan, **plan)  # type: ignore[arg-type]
    return dataclasses.replace(state, plan=new)
