"""What is said with a host agent survives the way there and back."""

from __future__ import annotations

from danaus.wire.lifecycle import (
    FROM_AGENT,
    TO_AGENT,
    KillProcess,
    PositionsSeen,
    ProcessExited,
    ProcessPosition,
    WatchProcess,
)
from danaus.wire.position import Phase


def test_words_to_an_agent() -> None:
    for said in (WatchProcess("h/a/0#1"), KillProcess("h/a/0#1", "hang", save_stacks=True)):
        assert TO_AGENT.decode(TO_AGENT.encode(said)) == said


def test_words_of_an_agent() -> None:
    seen = ProcessPosition("h/a/0#1", 3, Phase.JOIN, 1, waiting=True, still_s=0.5)
    for said in (
        ProcessExited("h/a/0#1", signal="SIGKILL", log_tail=("last", "words"), reason="hang"),
        ProcessExited("h/a/0#1", exit_code=3),
        PositionsSeen((seen,)),
    ):
        assert FROM_AGENT.decode(FROM_AGENT.encode(said)) == said
