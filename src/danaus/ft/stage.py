"""What a member process is doing, in one word.  Pure."""

from __future__ import annotations

import enum


class Stage(enum.Enum):
    """What a member is doing."""

    NEW = "new"
    JOINING = "joining"
    APPLYING = "applying"
    RESTORING = "restoring"
    LEARNING = "learning"
    COMPUTING = "computing"
    REDUCING = "reducing"
    VOTING = "voting"
    FINISHED = "finished"
