"""The folder of a run: where each thing lies, who may use it, and what must only grow.

Owns the layout below and the files under ``control/`` that a later controller needs; what is
written into ledgers, journal, metrics, logs and checkpoints belongs to those who write it.

    RUN/                              0700
      config.toml                     every resolved setting
      secret                          0600, the job's secret
      control/lock                    held (flock) by the living controller; who it is inside
      control/addresses.json          who is reached where
      control/running.toml            the settings with which a detached run goes on
      control/incarnations.json       how often each name was started
      quorum/                         the quorum service's state
      ledger/<replica>-<rank>.jsonl   journal.jsonl   metrics/<replica>.jsonl
      logs/<process>.log              checkpoints/step-000100/
      report.html  report.png         undisturbed/    (the same layout, the reference run)

Invariants:
    P-4: the folder is private; it holds all that is needed to find and end the run's processes.
    A run folder has at most one living controller.
    An incarnation handed out is never handed out again, whoever dies in between.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import shutil
import stat
import tempfile
import tomllib
from pathlib import Path
from typing import Any, Self

from danaus.app.run_lock import RunLock
from danaus.core import disk_sync
from danaus.core.config import toml_text
from danaus.core.errors import ConfigError, RunFolderBusy
from danaus.core.temporary_folder import TemporaryFolder
from danaus.core.whole_file import WholeFile
from danaus.wire.secret import Authority, Secret

# A unix socket's path fits in 108 bytes with its final zero; the longest name that we bind in
# the folder of sockets is well under 40.
_LONGEST_SOCKET_FOLDER_BYTES = 107 - 1 - 40


def default_run_path(name: str, now: dt.datetime, parent: Path = Path("runs")) -> Path:
    """Return ``runs/<date-time>-<name>``, or with ``-2``, ``-3``... where that is taken."""
    first = parent / f"{now:%Y%m%d-%H%M%S}-{name}"
    path, number = first, 1
    while path.exists():
        number += 1
        path = first.with_name(f"{first.name}-{number}")
    return path


class RunFolder:
    """One run's folder.  Made by ``create`` or ``open``; only a holder of the lock may write.

    Args:
        path: The folder; it exists.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = RunLock(path)
        self._elsewhere: TemporaryFolder | None = None

    # -- making, opening, holding ----------------------------------------------------------

    @classmethod
    def create(cls, path: Path, settings: object, authority: Authority | None = None) -> RunFolder:
        """Make the folder of a new run and hold it.

        Args:
            path: A folder that does not exist or is empty.
            settings: The run's settings, a dataclass; every resolved value is written down.
            authority: The user's own, for TLS between its machines; None: the job's.

        Raises:
            RunFolderBusy: The folder holds another run.
            ConfigError: The path is something else, or cannot be written.
        """
        path = path.absolute()
        refuse_used(path)
        folder = cls(path)
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.chmod(0o700)
            for name in ("control", "quorum", "ledger", "metrics", "logs", "checkpoints"):
                (path / name).mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                what=f"run folder {path} cannot be made",
                needed=error.strerror or str(error),
                to_do="choose another one with --run-dir",
            ) from error
        folder.hold()
        folder.secret_path.unlink(missing_ok=True)  # of a creation that was interrupted
        Secret.create(folder.secret_path, authority)
        # Last, as it is what makes the folder a run.
        _write_whole(folder.config_path, toml_text(settings))
        return folder

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """Open the folder of a run that exists, to read it; ``hold`` it before writing.

        Raises:
            ConfigError: There is no run at ``path``.
        """
        path = path.absolute()
        if not path.exists():
            raise ConfigError(what=f"run folder {path} does not exist", to_do=_known_runs(path))
        if not (path / "config.toml").is_file():
            raise ConfigError(
                what=f"{path} is not a run folder",
                needed="it has no config.toml",
                to_do=_known_runs(path),
            )
        return cls(path)

    def hold(self, *, take_over: bool = False) -> None:
        """Become the folder's one controller, until ``release`` or the end of this process.

        Args:
            take_over: End a controller that is alive.

        Raises:
            RunFolderBusy: Another controller is alive.
        """
        self._lock.hold(take_over=take_over)

    def release(self, *, keep_sockets: bool = False) -> None:
        """Stop holding the folder, and remove its folder of sockets if that lies elsewhere.

        Args:
            keep_sockets: Processes of a detached run still listen there.
        """
        if not self._lock.is_held:
            return
        if self._elsewhere is not None and not keep_sockets:
            self._elsewhere.remove()
            self._elsewhere = None
        self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def is_there(self) -> bool:
        """Tell whether the folder still is that of a run; anyone may remove it."""
        return self.config_path.is_file()

    def removed(self) -> ConfigError:
        """Return what is said where it is not there any more."""
        what = f"run folder {self.path} was removed while its run went on"
        needed = "journal, ledgers and checkpoints went with it; its processes are ended"
        return ConfigError(what, needed, "start it anew")

    # -- where things lie ------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The folder's own name."""
        return self.path.name

    @property
    def config_path(self) -> Path:
        return self.path / "config.toml"

    @property
    def running_path(self) -> Path:
        return self.control / "running.toml"

    @property
    def secret_path(self) -> Path:
        return self.path / "secret"

    @property
    def control(self) -> Path:
        return self.path / "control"

    @property
    def quorum(self) -> Path:
        return self.path / "quorum"

    @property
    def journal_path(self) -> Path:
        return self.path / "journal.jsonl"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def report_html(self) -> Path:
        return self.path / "report.html"

    @property
    def report_png(self) -> Path:
        return self.path / "report.png"

    @property
    def undisturbed(self) -> Path:
        """Folder of the reference run, which has this same layout; it need not exist."""
        return self.path / "undisturbed"

    def ledger_path(self, replica_id: str, rank: int) -> Path:
        """Return where one member process appends its ledger."""
        return self.path / "ledger" / f"{replica_id}-{rank}.jsonl"

    def ledger_paths(self) -> tuple[Path, ...]:
        """Return every ledger that exists, in order of name."""
        return tuple(sorted((self.path / "ledger").glob("*.jsonl")))

    def metrics_path(self, replica_id: str) -> Path:
        """Return where one replica appends its metrics."""
        return self.path / "metrics" / f"{replica_id}.jsonl"

    def log_path(self, process: str) -> Path:
        """Return the log of a process; slashes in its name become dashes."""
        return self.path / "logs" / f"{process.replace('/', '-')}.log"

    # -- what a later controller needs -----------------------------------------------------

    def config(self) -> dict[str, Any]:
        """Return the settings as nested dictionaries.

        Raises:
            ConfigError: ``config.toml`` is damaged.
        """
        try:
            return tomllib.loads(self.config_path.read_text())
        except (OSError, ValueError) as error:
            raise ConfigError(
                what=f"{self.config_path} cannot be read", needed=str(error)
            ) from error

    def secret(self) -> Secret:
        """Return the job's secret."""
        return Secret.load(self.secret_path)

    def addresses(self) -> dict[str, Any]:
        """Return who is reached where; empty before the first ``save_addresses``."""
        return _read_object(self.control / "addresses.json")

    def save_addresses(self, **addresses: Any) -> None:
        """Add or replace addresses by name, atomically."""
        self._must_hold()
        known = self.addresses() | addresses
        _write_object(self.control / "addresses.json", known)

    def incarnations(self) -> dict[str, int]:
        """Return the newest incarnation of each name."""
        return {k: int(v) for k, v in _read_object(self.control / "incarnations.json").items()}

    def next_incarnation(self, name: str) -> int:
        """Hand out the next incarnation of ``name``: 0, then 1...; on disk before it returns."""
        self._must_hold()
        known = self.incarnations()
        known[name] = known.get(name, -1) + 1
        _write_object(self.control / "incarnations.json", known)
        return known[name]

    def sockets(self, *, outlive: bool = False) -> Path:
        """Return a private folder whose path is short enough for unix sockets; make it if need be.

        It is ``control/sockets`` unless the run folder's own path is too long; then it is a
        folder in the temporary directory that ``addresses.json`` names and ``release`` removes.

        Args:
            outlive: Processes go on there without this one, if it is killed.
        """
        here = self.control / "sockets"
        if len(os.fsencode(here)) <= _LONGEST_SOCKET_FOLDER_BYTES:
            here.mkdir(mode=0o700, exist_ok=True)
            return here
        if self._elsewhere is None:
            self._must_hold()
            left = self._sockets_left()
            if outlive and left is not None:  # processes of an earlier controller listen there
                self._elsewhere = TemporaryFolder.found(left)
                return left
            self._elsewhere = TemporaryFolder(parent=_short_temporary(), outlives=outlive)
            self.save_addresses(sockets=str(self._elsewhere.path))
            if left is not None:
                shutil.rmtree(left, ignore_errors=True)
        return self._elsewhere.path

    def _sockets_left(self) -> Path | None:
        """Return the folder of sockets that an earlier controller has left, if it is ours."""
        named = self.addresses().get("sockets")
        if not isinstance(named, str):
            return None
        try:
            found = os.lstat(named)
        except OSError:
            return None
        # Anyone may make a folder in the temporary directory under a name we used before.
        private = stat.S_ISDIR(found.st_mode) and not found.st_mode & 0o077
        return Path(named) if private and found.st_uid == os.getuid() else None

    def _must_hold(self) -> None:
        if not self._lock.is_held:
            raise ConfigError(
                what=f"run folder {self.path} was opened to be read", to_do="hold it to write"
            )


def refuse_used(path: Path) -> None:
    """Raise unless ``path`` is free for a new run.

    Raises:
        RunFolderBusy: It holds another run.
        ConfigError: It is something else.
    """
    if (path / "config.toml").exists():
        raise RunFolderBusy(
            path=str(path),
            held_by="a run",
            to_do=f"go on with it by --resume {path}, or choose another folder with --run-dir",
        )
    if path.exists() and not path.is_dir():
        raise ConfigError(
            what=f"run folder {path} is a file", to_do="choose another one with --run-dir"
        )
    # A creation that was interrupted leaves an own layout without a config; it may be used.
    strangers = {p.name for p in path.iterdir()} - _OWN if path.is_dir() else set()
    if strangers:
        raise ConfigError(
            what=f"run folder {path} is not empty",
            needed=f"it holds {min(strangers)}",
            to_do="choose another one with --run-dir",
        )


_OWN = {"secret", "control", "quorum", "ledger", "metrics", "logs", "checkpoints"}


def _known_runs(path: Path) -> str:
    """Return a hint that names runs beside or below ``path``."""
    for parent in (path, path.parent, Path("runs").absolute()):
        found = sorted(p.parent for p in parent.glob("*/config.toml")) if parent.is_dir() else []
        if found:
            shown = [os.path.relpath(p) for p in found[-3:]]
            return f"runs here: {', '.join(shown)}"
    return "start one with: danaus train debug"


def _short_temporary() -> str:
    """Return the temporary directory, or ``/tmp`` where the user's own is too long as well."""
    own = tempfile.gettempdir()
    short = len(os.fsencode(own)) + len("/danaus-12345678") <= _LONGEST_SOCKET_FOLDER_BYTES
    return own if short else "/tmp"


def _read_object(path: Path) -> dict[str, Any]:
    """Return a JSON object, empty where there is no file.

    Raises:
        ConfigError: It is damaged.  It is written whole, so somebody else must have done that.
    """
    try:
        read = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ConfigError(what=f"{path} cannot be read", needed=str(error)) from error
    if not isinstance(read, dict):
        raise ConfigError(what=f"{path} holds no JSON object")
    return read


def _write_object(path: Path, value: dict[str, Any]) -> None:
    WholeFile(path).write(json.dumps(value, indent=1, sort_keys=True).encode())


def _write_whole(path: Path, text: str) -> None:
    """Replace a file so that a reader, now or after a power cut, sees the old or the new one."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "w") as file:
        file.write(text)
        file.flush()
        disk_sync.sync(file.fileno())
    draft.rename(path)
    parent = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        disk_sync.sync(parent)
    finally:
        os.close(parent)
