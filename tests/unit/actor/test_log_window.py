"""Identical lines are shown once, with who wrote them."""

from __future__ import annotations

import asyncio

from danaus.actor.log_window import LogWindow, Repeats


def test_each_line_is_told_once_with_its_writers():
    repeats = Repeats()
    repeats.add("w/0", ("start", "only here"))
    for rank in range(4):
        repeats.add(f"w/{rank}", ("all say this",))
    repeats.add("w/0", ("start", "start"))
    assert repeats.take() == [
        ("w/0, 3 times", "start"),
        ("w/0", "only here"),
        ("w/0 and 3 more", "all say this"),
    ]
    assert repeats.take() == []
    repeats.add("w/0", ("twice",))
    repeats.add("w/1", ("twice", "twice"))
    assert repeats.take() == [("w/0 and 1 more, 3 times", "twice")]


def test_a_window_collects_and_without_one_lines_come_at_once():
    shown = []

    async def run():
        collected = asyncio.Event()
        window = LogWindow(0.01, lambda who, lines: (shown.append((who, lines)), collected.set()))
        window.add("w/0", ("a",))
        window.add("w/1", ("a",))
        assert shown == []
        await collected.wait()
        window.add("w/0", ("b",))
        window.flush()

    asyncio.run(run())
    assert shown == [("w/0 and 1 more", ("a",)), ("w/0", ("b",))]
    LogWindow(0.0, lambda who, lines: shown.append((who, lines))).add("w/2", ("c", "d"))
    assert shown[-1] == ("w/2", ("c", "d"))
