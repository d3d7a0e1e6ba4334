"""What the end of a process means."""

from __future__ import annotations

from danaus.actor.agent_messages import HANG
from danaus.actor.failure import Fault, FaultKind
from danaus.wire.lifecycle import ProcessExited


def fault_of_exit(message: ProcessExited, time_s: float) -> Fault:
    """Return the fault of a process that its host agent reports as gone."""
    kind: FaultKind
    if message.reason.lower().startswith(HANG):
        kind = "hang"
    elif message.signal is not None:
        kind = "signal"
    else:
        kind = "exit"
    return Fault(
        kind=kind,
        reason=exit_words(message),
        exit_code=message.exit_code,
        signal=message.signal,
        log_tail=message.log_tail,
        time_s=time_s,
    )


def stop_words(reason: str) -> str:
    """Return in words that something was stopped, and why if somebody said so."""
    return f"it was stopped: {reason}" if reason else "it was stopped"


def exit_words(message: ProcessExited) -> str:
    """Return in words how a process has ended."""
    if message.signal is not None:
        how = f"its process was ended by {message.signal}"
    elif message.exit_code is not None:
        how = f"its process ended with exit code {message.exit_code}"
    else:
        return message.reason or "its process is gone"
    return f"{message.reason} ({how})" if message.reason else how
