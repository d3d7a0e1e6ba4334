"""A peer in an environment of its own (``make peers``): where its programs and Python lie."""

from __future__ import annotations

from pathlib import Path

from danaus.core.errors import ConfigError

_ENVIRONMENT = Path(".venv") / "bin" / "python"


class Peer:
    """One peer's folder.

    Args:
        folder: Holds its programs and its virtual environment.

    Raises:
        ConfigError: It is not there.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()
        self._python = self._folder / _ENVIRONMENT
        if not self._python.exists():
            raise ConfigError(f"{folder} has no virtual environment", to_do="make peers")

    def command(self, program: str, *arguments: object) -> list[str]:
        """Return the command line of one of its programs."""
        return [str(self._python), str(self._folder / f"{program}.py"), *map(str, arguments)]
