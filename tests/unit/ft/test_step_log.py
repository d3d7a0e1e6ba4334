"""The gradients that a donor keeps for learners that catch up (H-1, H-2)."""

import pytest
import torch

from danaus.core.clock import Deadline
from danaus.ft.snapshot import SnapshotRoom
from danaus.ft.step_log import LoggedStep, StepLog, places_for, step_in
from danaus.quorum.messages import Epoch
from danaus.testing import ManualClock

NUM_ELEMENTS = 100
ENTRY_BYTES = 4 * NUM_ELEMENTS
LINEAGE = 3


def applied(step):
    gradient = torch.full((NUM_ELEMENTS,), float(step))
    return LoggedStep(step, Epoch(1, step), gradient, (0.5, float(step)), f"d{step}")


@pytest.fixture
def room():
    return SnapshotRoom(4 * ENTRY_BYTES)


@pytest.fixture
def log(room):
    log = StepLog(room)
    log.begin(LINEAGE, 5)
    return log


def keep(log, *steps):
    for step in steps:
        copy = log.copy(applied(step))
        if copy is not None:
            log.add(copy)


def kept(log, first, last):
    return log.offer(LINEAGE, first, last) is not None


def test_nothing_is_copied_while_there_is_nobody_to_keep_it_for(room):
    log = StepLog(room)
    assert log.copy(applied(6)) is None
    assert log.newest(LINEAGE) is None
    log.begin(LINEAGE, 5)
    assert log.newest(LINEAGE) == 5
    assert log.newest(LINEAGE + 1) is None


def test_what_is_kept_is_as_it_was_before_it_was_applied(log):
    live = applied(6)
    copy = log.copy(live)
    live.gradient.zero_()
    log.add(copy)
    offered = log.offer(LINEAGE, 6, 6)
    into = places_for(6, num_elements=NUM_ELEMENTS, num_measures=2)
    names = [facts.name for facts in offered.manifest.tensors]
    for index, chunk in enumerate(offered.chunks):
        tensor = into[names[chunk.tensor]]
        assert tensor.numel() * tensor.element_size() == chunk.stop
        tensor.copy_(torch.frombuffer(bytearray(offered.chunk_bytes(index)), dtype=tensor.dtype))
    again = step_in(6, into)
    assert torch.equal(again.gradient, applied(6).gradient)
    assert (again.step, again.epoch, again.measures) == (6, Epoch(1, 6), (0.5, 6.0))
    assert offered.manifest.fingerprint == "d6"


def test_several_steps_are_served_as_one_run_in_order(log):
    keep(log, 6, 7, 8)
    offered = log.offer(LINEAGE, 6, 8)
    assert (offered.step, offered.manifest.fingerprint) == (6, "d6,d7,d8")
    assert [int(f.name.partition(".")[0]) for f in offered.manifest.tensors] == sorted(
        4 * [6, 7, 8]
    )
    assert not kept(log, 5, 7)
    assert not kept(log, 7, 9)
    assert not kept(log, 8, 7)
    assert log.offer(LINEAGE + 1, 6, 8) is None


def test_the_oldest_go_where_there_is_no_room_and_snapshots_count(log, room):
    keep(log, 6, 7, 8, 9)
    assert room.free_bytes == 0
    keep(log, 10)
    assert (kept(log, 6, 6), kept(log, 7, 10)) == (False, True)
    log.end()
    assert room.reserve(3 * ENTRY_BYTES)
    log.begin(LINEAGE, 10)
    keep(log, 11, 12)
    assert (kept(log, 11, 11), kept(log, 12, 12)) == (False, True)
    assert room.reserve(1) is False


def test_without_room_for_one_nothing_is_kept_and_the_newest_is_known(room):
    assert room.reserve(4 * ENTRY_BYTES)
    log = StepLog(room)
    log.begin(LINEAGE, 5)
    keep(log, 6, 7)
    assert log.newest(LINEAGE) == 7
    assert not kept(log, 7, 7)
    room.release(4 * ENTRY_BYTES)
    keep(log, 8)
    assert kept(log, 8, 8)


def test_a_step_that_is_missing_ends_the_run_of_those_before_it(log):
    keep(log, 6, 7)
    keep(log, 9)
    assert not kept(log, 7, 7)
    assert kept(log, 9, 9)


def test_another_lineage_begins_anew_and_the_same_goes_on(log, room):
    keep(log, 6, 7)
    log.begin(LINEAGE, 7)
    assert kept(log, 6, 7), "for the learner that came before"
    log.begin(LINEAGE + 1, 4)
    assert (log.newest(LINEAGE), log.newest(LINEAGE + 1)) == (None, 4)
    assert room.free_bytes == 4 * ENTRY_BYTES


def ahead(room, clock, *, free_bytes=0):
    log = StepLog(room)
    log.begin_ahead(LINEAGE, 5, until=Deadline.after(60.0, clock), free_bytes=free_bytes)
    return log


def test_what_is_kept_for_learners_that_are_yet_to_come_leaves_room_for_a_state(room):
    log = ahead(room, ManualClock(), free_bytes=2 * ENTRY_BYTES)
    keep(log, 6, 7, 8)
    assert not kept(log, 6, 8)
    assert kept(log, 7, 8)
    assert room.free_bytes == 2 * ENTRY_BYTES
    log.begin(LINEAGE, 8)  # they are there
    keep(log, 9, 10)
    assert kept(log, 7, 10)


def test_learners_that_do_not_come_are_given_up(room):
    clock = ManualClock()
    log = ahead(room, clock)
    keep(log, 6)
    clock.advance(61.0)
    assert log.copy(applied(7)) is None
    assert room.free_bytes == room.room_bytes


def test_learners_that_are_there_are_served_on_whoever_is_yet_to_come(log, room):
    keep(log, 6)
    until = Deadline.after(60.0, ManualClock())
    log.begin_ahead(LINEAGE, 6, until=until, free_bytes=4 * ENTRY_BYTES)
    keep(log, 7, 8)
    assert kept(log, 6, 8)
