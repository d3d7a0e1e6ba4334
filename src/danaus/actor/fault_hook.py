"""What happens to a failure that nobody handled (A-7).

Users set ``danaus.actor.unhandled_fault_hook``; the one here is what stands there otherwise.
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Callable
from typing import NoReturn, cast

from danaus.actor.attempt import Attempt, exits
from danaus.actor.failure import MeshFailure

REPLACED_CODE = 75
"""Exit code of a controller whose place another has taken."""


def unhandled_fault_hook(failure: MeshFailure) -> None:
    """Report the failure and end the process with exit code 1; all that it started ends too."""
    sys.stderr.write(f"danaus: nobody handled this failure:\n{failure.report()}\n{_TO_DO}\n")
    end_program(1)


_TO_DO = (
    "this program ends here; an owner whose __supervise__ returns true, or "
    "danaus.actor.unhandled_fault_hook, lets it go on"
)


def end_program(code: int) -> NoReturn:
    """End the process now, from any thread; what it has printed is not lost with it."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def end_replaced(why: str) -> None:
    """End a controller whose place another has taken (A-12): what it started goes on without it."""
    words = f"this controller was replaced by a later one: {why}; it ends, and the run goes on"
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(f"danaus: {words}\n")
    end_program(REPLACED_CODE)


def call_fault_hook(failure: MeshFailure) -> None:
    """Call the hook that the user has set, or the default one.

    The failure is handled if it returns; if it raises, or calls ``sys.exit``, the program ends.
    """
    face = sys.modules.get("danaus.actor")
    hook = vars(face).get("unhandled_fault_hook") if face is not None else None
    with exits(end_program):
        with Attempt() as attempt:
            cast("Callable[[MeshFailure], None]", hook or unhandled_fault_hook)(failure)
        if attempt.error is not None:
            traceback.print_exception(attempt.error)
            unhandled_fault_hook(failure)
