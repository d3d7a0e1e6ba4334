"""Who is to train, as the run folder remembers it: for a controller that comes later.

Owns ``control/crew.json``, which is written before anything is done about it.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from danaus.core.errors import ConfigError
from danaus.core.whole_file import WholeFile


class CrewRecord(msgspec.Struct, frozen=True):
    """What was asked for last.

    ``places`` are to train (``replica-2`` has place 2), ``closed`` are hosts that are not used,
    ``rolled`` those that an unfinished roll has restarted.
    """

    places: tuple[int, ...]
    closed: tuple[int, ...] = ()
    rolled: tuple[int, ...] = ()


def read_crew(control: Path) -> CrewRecord | None:
    """Return what a run's folder remembers, None if nobody has changed its crew.

    Raises:
        ConfigError: The file is damaged.
    """
    path = control / "crew.json"
    try:
        return msgspec.json.decode(path.read_bytes(), type=CrewRecord)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise ConfigError(what=f"{path} cannot be read", needed=str(error)) from error


def write_crew(control: Path, record: CrewRecord) -> None:
    """Remember it; on the disk once this returns."""
    WholeFile(control / "crew.json").write(msgspec.json.encode(record))
