"""A descriptor that wakes whoever polls it."""

import os
import select

from danaus.core.nudge import Nudge


def is_readable(nudge):
    poll = select.poll()
    poll.register(nudge, select.POLLIN)
    return bool(poll.poll(0))


def test_it_is_readable_from_giving_to_taking_however_often_it_was_given():
    nudge = Nudge()
    assert not is_readable(nudge)
    nudge.take()
    for times in (1, 2, 5000):
        for _ in range(times):
            assert nudge.give()
        assert is_readable(nudge)
        nudge.take()
        assert not is_readable(nudge)
    nudge.close()


def test_one_that_is_full_blocks_nobody():
    nudge = Nudge()
    capacity = 1 << 20  # what any pipe holds, and more
    for _ in range(capacity // 512):
        try:
            os.write(nudge._write, bytes(512))
        except BlockingIOError:
            break
    assert nudge.give()
    nudge.take()
    assert not is_readable(nudge)
    nudge.close()


def test_a_closed_one_takes_nothing_and_keeps_no_descriptor():
    before = len(os.listdir("/proc/self/fd"))
    nudge = Nudge()
    nudge.close()
    assert nudge.fileno() == -1
    assert not nudge.give()
    nudge.close()
    assert len(os.listdir("/proc/self/fd")) == before
