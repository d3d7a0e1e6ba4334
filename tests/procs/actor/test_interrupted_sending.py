"""Ctrl-C in the middle of sending loses no message and holds none back (A-1)."""

from __future__ import annotations

import dis
import itertools
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from danaus.actor import Actor, endpoint, shutdown_context, this_host

LIMIT_S = 30.0


class Seeing(Actor):
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    @endpoint
    def plain(self, value: int) -> int:
        self.seen.append(value)
        return value

    @endpoint
    def take_seen(self) -> list[int]:
        seen, self.seen = self.seen, []
        return seen


@pytest.fixture
def one():
    yield this_host().spawn_procs(per_host={"gpus": 1}).spawn("seeing", Seeing)
    shutdown_context().get(LIMIT_S)


@pytest.mark.skipif(
    sys.version_info >= (3, 13), reason="settrace tells of fewer instructions there"
)
@pytest.mark.parametrize("adverb", ["call", "call_one", "broadcast"])
def test_ctrl_c_may_strike_at_any_step_of_sending(one, adverb: str) -> None:
    struck: list[int] = []
    for step in itertools.count(1):
        if not is_interrupted(step, lambda at=step: getattr(one.plain, adverb)(at)):
            break  # there are fewer steps than that
        assert one.plain.call_one(-step).get(LIMIT_S) == -step
        struck.append(step)
    assert len(struck) > 30
    seen = one.take_seen.call_one().get(LIMIT_S)
    assert [-value for value in seen if value < 0] == struck
    went = [value for value in seen if value in struck]
    assert went == sorted(set(went))  # each at most once, in order


def is_interrupted(step: int, function: Callable[[], object]) -> bool:
    """Interrupt a function at one of its steps within ``danaus``; tell whether it has so many.

    Those after which the interpreter looks for signals.
    """
    left, before = step, dict[FrameType, str]()

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal left
        if "danaus" not in frame.f_code.co_filename:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            if before.get(frame, "").startswith(("CALL", "RESUME", "JUMP_BACKWARD")):
                left -= 1
                if not left:
                    signal.raise_signal(signal.SIGINT)
            before[frame] = dis.opname[frame.f_code.co_code[frame.f_lasti]]
        return trace

    sys._getframe().f_trace_opcodes = True  # in 3.12 it counts when tracing begins
    try:
        sys.settrace(trace)
        try:
            function()
        finally:
            sys.settrace(None)
    except KeyboardInterrupt:
        return True
    return False
