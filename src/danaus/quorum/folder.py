"""Where the processes of a run find each other that share a folder on one machine.

Owns the names in that folder; the quorum service and the members both go by them.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from danaus.core.errors import ConfigError
from danaus.wire.secret import Secret


@dataclass(frozen=True, slots=True)
class RunFiles:
    """What lies where in the folder of a run.

    Args:
        folder: Absolute.
    """

    folder: Path

    @classmethod
    def prepare(cls, folder: str | os.PathLike[str]) -> RunFiles:
        """Make the folder (0700) and the job's secret in it, where they are not there yet.

        Raises:
            ConfigError: It is something else, or cannot be made; or its secret cannot be used.
        """
        path = Path(folder).absolute()
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            is_other = isinstance(error, FileExistsError)
            why = "it is no folder" if is_other else error.strerror or str(error)
            raise ConfigError(
                f"folder {path} cannot be made: {why}", to_do="name another one"
            ) from error
        files = cls(path)
        Secret.ensure(files.secret)
        return files

    @property
    def secret(self) -> Path:
        """The job's secret."""
        return self.folder / "secret"

    @property
    def service_address(self) -> str:
        """Where the quorum service listens."""
        return f"unix:{self.folder / 'quorum.sock'}"

    @property
    def quorum(self) -> Path:
        """What the quorum service keeps."""
        return self.folder / "quorum"

    @property
    def journal(self) -> Path:
        """Where the quorum service writes down its decisions."""
        return self.folder / "journal.jsonl"

    def data_address(self, replica_id: str, incarnation: int) -> str:
        """Return where one replica's process listens for its peers."""
        return f"unix:{self.folder / f'{replica_id}-{incarnation}.sock'}"
