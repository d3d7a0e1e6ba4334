"""What happened in a simulated run, for people."""

from __future__ import annotations

from typing import Any

import msgspec

from danaus.quorum.messages import (
    Announcement,
    Epoch,
    Learner,
    MemberId,
    OpenStep,
    Outcome,
    QuorumRecord,
    Seat,
    StepReport,
)


def story(trace: list[tuple[float, str, Any]], last: int = 300) -> str:
    """Return the last lines of a trace."""
    return "\n".join(f"{at:9.4f} {who:8} {brief(what)}" for at, who, what in trace[-last:])


def brief(value: Any) -> str:  # noqa: C901
    """Return a value as short as it can be told."""
    if isinstance(value, Epoch | MemberId):
        return str(value)
    if isinstance(value, Seat):
        return str(value.member)
    if isinstance(value, QuorumRecord):
        return f"{value.epoch}[{', '.join(map(str, value.members))}]"
    if isinstance(value, Outcome):
        return f"{value.verdict} {value.step}@{value.epoch} ({value.reason})"
    if isinstance(value, OpenStep):
        seen = " seen" if value.refused_seen else ""
        return f"{value.step}@{value.epoch} {value.vote}{seen} {value.digest}"
    if isinstance(value, Learner):
        return f"{brief(value.seat)} of {brief(value.donors)}"
    if isinstance(value, StepReport):
        last = value.last_quorum.epoch if value.last_quorum else None
        return (
            f"<{value.committed_step}@{value.committed_epoch} {value.fingerprint or '-'} "
            f"open {brief(value.open_step)} last {last} seen {value.seen_epoch} "
            f"ckpt {value.restorable_step}{' done' if value.done else ''}>"
        )
    if isinstance(value, Announcement):
        flags = "".join(f" {f}" for f in ("hold", "finished") if getattr(value, f))
        return (
            f"{value.epoch}{brief(value.members)} {value.start}{flags} at {value.committed_step}; "
            f"learners {brief(value.learners)}; {brief(value.outcome)}; {value.reason}"
        )
    if isinstance(value, msgspec.Struct) or hasattr(value, "__dataclass_fields__"):
        names = getattr(value, "__struct_fields__", getattr(value, "__dataclass_fields__", ()))
        parts = ", ".join(brief(getattr(value, name)) for name in names)
        return f"{type(value).__name__}({parts})"
    if isinstance(value, tuple | list):
        return "[" + ", ".join(brief(one) for one in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{brief(k)}: {brief(v)}" for k, v in value.items()) + "}"
    return str(value)
