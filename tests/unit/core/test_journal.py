"""A journal keeps whole lines, loses none silently, and never stops a run."""

import errno
import json
import os
import stat
import threading
from pathlib import Path

import pytest

from danaus.core.journal import Journal, read
from danaus.testing.clock import ManualClock

pytestmark = pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's /dev/full")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run" / "journal.jsonl"


def test_lines_come_back_with_their_facts(path):
    with Journal(path, ManualClock(7.25)) as journal:
        journal.record("worker_died", process="a/0#0", signal="SIGKILL", after_s=0.1)
        journal.record("odd", where=Path("somewhere"), at="not a moment")
    died, odd = read(path)
    assert (died["event"], died["process"], died["mono"]) == ("worker_died", "a/0#0", 7.25)
    assert odd["where"] == "somewhere"
    assert isinstance(odd["at"], float), "facts do not hide when it happened"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_journal_that_is_not_there_has_no_lines(path):
    assert read(path) == []


def test_a_torn_line_is_left_out_and_the_next_starts_afresh(path):
    with Journal(path) as journal:
        journal.record("first")
    with path.open("ab") as file:
        file.write(b'{"event":"tor')
    assert [line["event"] for line in read(path)] == ["first"]
    with Journal(path) as journal:
        journal.record("second")
    assert [line["event"] for line in read(path)] == ["first", "second"]


def test_several_writers_interleave_whole_lines(path):
    def write(name):
        with Journal(path) as journal:
            for number in range(50):
                journal.record("tick", name=name, number=number)

    writers = [threading.Thread(target=write, args=(name,)) for name in "abc"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(timeout=10)
    lines = read(path)
    for name in "abc":
        assert [line["number"] for line in lines if line["name"] == name] == list(range(50))


def test_a_full_disk_costs_lines_but_no_exception():
    with Journal(Path("/dev/full")) as journal:
        journal.record("lost")
        journal.record("lost")
    assert journal.num_lost == 2


def test_the_next_line_says_how_many_were_lost(path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with Journal(path) as journal:
        with monkeypatch.context() as full:
            full.setattr(os, "write", refuse)
            journal.record("lost")
            journal.record("lost")
        journal.record("room again")
        journal.record("all well")
    again, well = read(path)
    assert again["lost_before"] == 2
    assert "lost_before" not in well


def test_half_a_line_on_a_full_disk_counts_as_lost(path, monkeypatch):
    write = os.write
    with Journal(path) as journal:
        with monkeypatch.context() as full:
            full.setattr(os, "write", lambda file, data: write(file, data[:10]))
            journal.record("half")
        journal.record("whole")
    (line,) = read(path)
    assert (line["event"], line["lost_before"]) == ("whole", 1)


def test_a_file_that_can_be_opened_only_later_is_opened_later(path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(os, "open", refuse)
        journal = Journal(path)
        journal.record("lost")
    journal.record("kept")
    journal.close()
    journal.record("after the end")
    assert [line["event"] for line in read(path)] == ["kept"]
    assert journal.num_lost == 2


def test_a_path_that_cannot_be_is_told_at_once(tmp_path):
    with pytest.raises(IsADirectoryError):
        Journal(tmp_path)


def test_what_json_cannot_hold_is_lost_not_raised(path):
    loop = {}
    loop["loop"] = loop
    with Journal(path) as journal:
        journal.record("loop", loop=loop)
        journal.record("fine")
    assert journal.num_lost == 1
    assert json.loads(path.read_text())["event"] == "fine"
