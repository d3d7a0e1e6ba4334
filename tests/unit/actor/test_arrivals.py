"""What a session brings, between the thread that reads it and the connections' loop (A-1, A-4)."""

from __future__ import annotations

import pytest

from danaus.actor.arrivals import Arrivals


class Loop:
    """The connections' loop: runs what was posted when the test says so."""

    def __init__(self) -> None:
        self.is_current = False
        self.posted = []

    def post(self, function, *args) -> None:
        self.posted.append((function, args))

    def run(self) -> None:
        self.is_current = True
        try:
            while self.posted:
                function, args = self.posted.pop(0)
                function(*args)
        finally:
            self.is_current = False


class Session:
    def __init__(self) -> None:
        self.ended: list[str] = []

    def end(self, why: str) -> None:
        self.ended.append(why)


def test_the_loop_handles_in_order_what_another_thread_has_read():
    loop, handled = Loop(), []
    arrivals = Arrivals(loop, Session())
    assert arrivals.may_be_handled
    arrivals.handle(handled.append, 1)
    assert not handled
    assert not arrivals.may_be_handled  # what comes now waits for that
    arrivals.handle(handled.append, 2)
    loop.is_current = True
    arrivals.handle(handled.append, 3)  # read by the loop itself, before it has come to the others
    assert not handled
    loop.run()
    assert handled == [1, 2, 3]
    assert arrivals.may_be_handled


def test_the_loop_handles_at_once_what_it_has_read_itself():
    loop, handled = Loop(), []
    loop.is_current = True
    Arrivals(loop, Session()).handle(handled.append, 1)
    assert handled == [1]
    assert not loop.posted


def test_what_cannot_be_handled_ends_its_session_as_if_the_loop_had_read_it():
    loop, session, handled = Loop(), Session(), []
    arrivals = Arrivals(loop, session)
    arrivals.handle(int, "no number")
    arrivals.handle(handled.append, 2)
    with pytest.raises(ValueError, match="no number"):
        loop.run()
    assert session.ended == ["what receives its messages failed"]
    loop.run()
    assert arrivals.may_be_handled
