"""P-1, where the kernel has no pidfd: a kqueue tells of an end.

There is no kqueue here: a stand-in takes the same calls, and watches by a pidfd all the same.
"""

import os
import select
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest

from danaus.core import process_descriptor
from danaus.core.process_descriptor import open_process, signal_process

LIMIT_MS = 20_000


class Kqueue:
    """Holds a descriptor of the process that it is told to watch, as a kqueue of its event."""

    def __init__(self):
        self._watched = -1

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self._watched >= 0:
            os.close(self._watched)

    def control(self, changes, max_events):
        ((pid, *what),) = changes
        assert (what, max_events) == (["proc", "add", "exit"], 0)
        self._watched = os.pidfd_open(pid)
        return []

    def fileno(self):
        return self._watched


@pytest.fixture(params=["pidfd", "kqueue"])
def kernel(request, monkeypatch):
    if request.param == "kqueue":
        stand_in = SimpleNamespace(
            kqueue=Kqueue,
            kevent=lambda *facts: facts,
            KQ_FILTER_PROC="proc",
            KQ_EV_ADD="add",
            KQ_NOTE_EXIT="exit",
        )
        monkeypatch.setattr(process_descriptor, "_kernel", stand_in)
        monkeypatch.setattr(process_descriptor, "_HAS_PIDFD", False)
    return request.param


@pytest.fixture
def child():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def has_ended(descriptor, limit_ms):
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(limit_ms))


def test_its_end_is_told_and_signals_reach_nobody_afterwards(kernel, child):
    descriptor = open_process(child.pid)
    try:
        signal_process(descriptor, child.pid, 0)
        assert not has_ended(descriptor, 0)
        signal_process(descriptor, child.pid, signal.SIGTERM)
        assert has_ended(descriptor, LIMIT_MS)
        assert child.wait() == -signal.SIGTERM
        with pytest.raises(ProcessLookupError):
            signal_process(descriptor, os.getpid(), 0)  # as if its pid were another's now
    finally:
        os.close(descriptor)


def test_a_process_that_is_not_there_has_none(kernel, child):
    child.kill()
    child.wait()
    with pytest.raises(ProcessLookupError):
        open_process(child.pid)
