"""A-12: what a controller holds, written down and read again."""

from __future__ import annotations

import asyncio
import os
import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from danaus.actor.holdings import (
    ActorsHeld,
    BudgetUsed,
    ControllerBegan,
    HeldProcess,
    Holdings,
    HostHeld,
    HostLetGo,
    MeshLetGo,
    MeshNoted,
    ProcessBegan,
    ProcsHeld,
    WorkspaceHeld,
    apply,
    entries_of,
    line_of,
    lines_of,
    replay,
)
from danaus.actor.holdings_log import HoldingsLog, read_holdings
from danaus.actor.identity import ProcessRef
from danaus.actor.made_of import LINE_BYTES
from danaus.actor.owned import OwnedActors, OwnedProcs, ProcsTerms
from danaus.actor.ownership_record import OwnershipRecord
from danaus.actor.restart import Restart
from danaus.actor.supervision_messages import MeshOwned, ProcessName
from danaus.core.extent import Extent

names = st.sampled_from(["a", "b", "c"])
processes = st.tuples(names, st.integers(0, 2)).map(lambda at: f"host{at[1]}/{at[0]}/0#0")
pids = st.integers(1, 99)
held = st.builds(HeldProcess, processes, names)
entries = st.one_of(
    st.builds(ControllerBegan, st.integers(1, 9), names, pids, pids),
    st.builds(HostHeld, names, names, pids, pids),
    st.builds(HostLetGo, names),
    st.builds(WorkspaceHeld, names, names),
    st.builds(
        ProcsHeld,
        *(names, names, names, st.just(("r",)), st.just((1,)), st.tuples(held)),
        st.binary(max_size=3),
    ),
    st.builds(ProcessBegan, processes, pids),
    st.builds(
        ActorsHeld,
        *(names, names, names, st.just(()), st.just(()), names),
        st.none() | st.just(Restart("rest_for_one", intensity=2)),
        st.binary(max_size=3),
    ),
    st.builds(MeshNoted, names, st.dictionaries(names, names, max_size=2)),
    st.builds(MeshLetGo, names),
    st.builds(BudgetUsed, names, st.tuples(st.floats(0, 9)), pids),
)
histories = st.lists(entries, max_size=12)


def after(history) -> Holdings:
    state = Holdings()
    for entry in history:
        state = apply(state, entry)
    return state


@given(histories)
def test_lines_give_the_state_that_wrote_them(history):
    assert replay(b"".join(map(line_of, history))).state == after(history)


@given(histories)
def test_a_file_written_anew_says_the_same(history):
    state = after(history)
    assert replay(lines_of(state)).state == state
    assert len(entries_of(state)) <= len({repr(each) for each in history}) + len(state.pids)


@given(histories, st.data())
def test_a_file_torn_anywhere_gives_what_was_whole_before(history, data):
    lines = [line_of(entry) for entry in history]
    whole = b"".join(lines)
    cut = data.draw(st.integers(0, len(whole)))
    lengths = [sum(map(len, lines[:n])) for n in range(len(lines) + 1)]
    complete = max(n for n, length in enumerate(lengths) if length <= cut)
    found = replay(whole[:cut])
    assert found.state == after(history[:complete])
    assert found.num_dropped == (cut not in lengths)


def test_lines_of_another_version_and_damage_are_left_out_and_counted():
    lines = [line_of(HostHeld("a", "unix:/a")), b'{"type":"of_tomorrow"}\n', b"\xff\x00\n"]
    found = replay(b"".join(lines))
    assert (list(found.state.hosts), found.num_dropped) == (["a"], 2)


def test_a_mesh_that_ends_takes_along_what_is_on_it_and_what_is_known_of_it():
    process = HeldProcess("host0/w/0#0", "unix:/a")
    state = after(
        [
            ProcsHeld("w.1", "w", "", (), (), (process,)),
            ProcessBegan(process.process_id, 7),
            ActorsHeld("s.1", "s", "", (), (), "w.1"),
            MeshNoted("w.1", {"k": "v"}),
        ]
    )
    assert state.actors_on("w.1")
    assert apply(state, MeshLetGo("w.1")) == Holdings()


# -- the file ---------------------------------------------------------------------------------


@pytest.fixture
def open_log(tmp_path):
    opened = []

    def make() -> HoldingsLog:
        log = HoldingsLog(tmp_path / "control" / "holdings.jsonl")
        log.begin("controller/1.a/0#0", 1, 1)
        opened.append(log)
        return log

    yield make
    for log in opened:
        log.close()


def test_a_later_controller_reads_what_was_held_and_counts_on(open_log):
    first = open_log()
    first.record(HostHeld("host0", "unix:/a"))
    first.close()
    second = open_log()
    assert (first.state.generation, second.state.generation) == (1, 2)
    assert list(second.state.hosts) == ["host0"]
    assert stat.S_IMODE(os.stat(second.path).st_mode) == 0o600


def test_a_torn_tail_is_dropped_before_more_is_written(open_log):
    first = open_log()
    first.close()
    with first.path.open("ab") as file:
        file.write(line_of(HostHeld("host0", "unix:/a"))[:-5])
    second = open_log()
    second.record(HostHeld("host1", "unix:/b"))
    assert second.num_dropped == 1
    assert list(read_holdings(second.path).hosts) == ["host1"]
    assert replay(second.path.read_bytes()).num_dropped == 0


def test_one_that_was_replaced_writes_nothing_any_more(open_log):
    first = open_log()
    second = open_log()
    second.record(HostHeld("host0", "unix:/a"))
    first.record(HostLetGo("host0"))
    assert first.replaced
    assert not first.trouble
    assert list(read_holdings(second.path).hosts) == ["host0"]
    assert not second.replaced


def test_a_file_that_has_grown_is_written_anew(open_log):
    log = open_log()
    largest = 0
    for n in range(3000):
        log.record(BudgetUsed("replica-0", (float(n),), n))
        largest = max(largest, log.path.stat().st_size)
    assert largest < 128 * 1024
    assert read_holdings(log.path) == log.state
    assert log.state.budgets["replica-0"].total == 2999
    assert os.listdir(log.path.parent) == [log.path.name]
    assert open_log().state.generation == 2


def test_a_draft_that_a_killed_controller_left_is_in_nobodys_way(open_log):
    log = open_log()
    log.path.with_name(f"{log.path.name}.new").write_bytes(b"half")
    for n in range(2000):
        log.record(BudgetUsed("replica-0", (float(n),), n))
    assert read_holdings(log.path) == log.state


# -- what is too much for a line ----------------------------------------------------------------

MUCH = [b"class", bytes(LINE_BYTES)]
POINT = Extent.of({"r": 1}).point(0)
PLACED = MeshOwned(
    *("s.1", "s", None, (POINT,), (ProcessName("job", "host0/w/0#0"),)), on="w.1", restart=Restart()
)


def files(log) -> list[str]:
    return sorted(os.listdir(log.path.parent))


@pytest.fixture
def record(open_log):
    """A record of what is owned in a job, and the log that it goes into."""
    log = open_log()
    record = OwnershipRecord(lambda why: None)
    record.keep("job", log)
    procs = OwnedProcs("w.1", "w", [ProcessRef("host0/w/0#0", "a", "", "job")], terms=TERMS)
    on = MeshOwned("w.1", "w", None, PLACED.points, PLACED.processes)
    record.owned(procs, on)
    return record, log


TERMS = ProcsTerms(({},))


def owned(record, parts) -> OwnedActors:
    actors = OwnedActors("s.1", "s", POINT.extent)
    actors.made_of, actors.made_in = parts, record.lay_down(PLACED, parts)
    record.owned(actors, PLACED)
    return actors


def test_what_is_too_much_for_a_line_lies_in_a_file_until_the_mesh_ends(record, open_log):
    record, log = record
    actors = owned(record, MUCH)
    assert log.path.stat().st_size < LINE_BYTES
    again = open_log()
    held = again.state.actors["s.1"]
    assert again.made.read(held.made_in) == MUCH
    assert held.made_in == actors.made_in
    again.record(MeshLetGo("w.1"))
    assert files(again) == [again.path.name]


def test_a_file_that_no_line_names_goes_with_the_next_controller(record, open_log):
    record, log = record
    record.lay_down(PLACED, MUCH)
    assert len(files(log)) == 2
    assert files(open_log()) == [log.path.name]


def test_a_later_controllers_files_are_let_alone(record, open_log):
    record, log = record
    owned(record, MUCH)
    later = open_log()
    record.ended("s.1")
    assert log.replaced
    assert later.made.read(later.state.actors["s.1"].made_in) == MUCH


def test_a_damaged_file_says_nothing(record):
    record, log = record
    actors = owned(record, MUCH)
    path = log.path.with_name(f"{log.path.name}.made") / actors.made_in
    path.write_bytes(path.read_bytes()[:-1])
    assert log.made.read(actors.made_in) == []


def test_a_file_that_cannot_be_written_is_written_later(record):
    asyncio.run(_written_later(*record))


async def _written_later(record, log) -> None:
    in_its_way = log.path.with_name(f"{log.path.name}.made")
    in_its_way.touch()
    actors = owned(record, MUCH)
    assert (actors.made_in, log.state.actors["s.1"].made_in) == ("", "")
    in_its_way.unlink()
    record._retry()
    assert log.made.read(log.state.actors["s.1"].made_in) == MUCH
