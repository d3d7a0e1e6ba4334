"""What is said of a message on its way through a tree of processes (A-11)."""

from __future__ import annotations

import enum

import msgspec


class Point(msgspec.Struct, frozen=True, array_like=True):
    """One receiver: ``at`` is its place in the call, the others are as of ``Deliver``."""

    at: int
    rank: int
    incarnation: int
    number: int


class CastTo(msgspec.Struct, frozen=True, array_like=True):
    """What one process is given, and passes on; the first four say where it is found."""

    process_id: str
    agent_address: str
    address: str
    job: str
    points: tuple[Point, ...]
    below: tuple[CastTo, ...] = ()


class Cast(msgspec.Struct, frozen=True, tag="cast", array_like=True):
    """A message for many actors; parts: ``(args, kwargs)``.  Answered by ``Gathered``.

    ``waits``: the endpoints' answers are wanted, not only that all have the message.  ``axes`` and
    ``sizes`` are the extent of what is called.
    """

    call: int
    mesh_id: str
    endpoint: str
    sender: str
    waits: bool
    to: CastTo
    axes: tuple[str, ...]
    sizes: tuple[int, ...]


class How(enum.IntEnum):
    """How one point of a cast came out."""

    RETURNED = 0
    RAISED = 1
    GONE = 2
    LOST = 3  # whoever was to pass it on is gone: whether it got there is not known


class PointAnswer(msgspec.Struct, frozen=True, array_like=True):
    """The answer of one point; ``num_parts`` of the message's parts, in order, are its own.

    ``words``: of ``Raised`` or ``Gone`` all but the number of the call.
    """

    at: int
    how: How
    words: tuple[str, ...]
    num_parts: int


class Gathered(msgspec.Struct, frozen=True, tag="gathered", array_like=True):
    """Answers to a ``Cast``; after the last, points without one have the message (``waits`` no)."""

    call: int
    answers: tuple[PointAnswer, ...]
    is_last: bool
