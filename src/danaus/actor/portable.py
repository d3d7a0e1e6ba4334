"""Exceptions, faults and failures as parts of a message, whatever they carry.

An exception of a user's class may not pickle; then it is left out, and its text remains.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, TypeVar

from danaus.actor.attempt import Attempt
from danaus.actor.failure import Fault, MeshFailure
from danaus.wire.codec import own, pack, unpack
from danaus.wire.frame import Buffer

T = TypeVar("T")


def packed_exception(error: BaseException | None) -> list[Buffer]:
    """Return an exception's parts, none where it cannot be pickled or would not come back."""
    return [] if error is None else _packed(error)


def packed_fault(fault: Fault) -> list[Buffer]:
    """Return a fault's parts."""
    return _packed(fault) or _packed(dataclasses.replace(fault, exception=None))


def packed_failure(failure: MeshFailure) -> list[Buffer]:
    """Return a failure's parts."""
    return _packed(failure) or _packed(_bare(failure))


def unpacked(parts: Sequence[Buffer], kind: type[T]) -> T | None:
    """Return what the parts hold, None if it cannot be unpacked here."""
    value: Any = None
    with Attempt():
        value = unpack(parts)
    return value if isinstance(value, kind) else None


def _bare(failure: MeshFailure) -> MeshFailure:
    cause = failure.cause and _bare(failure.cause)
    return dataclasses.replace(failure, exception=None, cause=cause)


def _packed(value: Fault | MeshFailure | BaseException) -> list[Buffer]:
    parts: list[Buffer] = []
    with Attempt() as attempt:
        parts = own(pack(value))
        unpack(parts)
    return [] if attempt.error is not None else parts
