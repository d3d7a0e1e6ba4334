"""Which CPUs and memory the processes of a host get."""

from __future__ import annotations

import os

import pytest

from danaus.actor.binding import (
    Binding,
    Place,
    Topology,
    parse_list,
    places,
    read_topology,
    wanted_binding,
)
from danaus.core.errors import ConfigError

TWO = Topology({0: (0, 1, 2, 3), 1: (4, 5, 6, 7)})


def test_without_a_wish_a_process_may_run_anywhere():
    assert places(TWO, wanted_binding(None), 3) == [Place()] * 3
    assert places(TWO, wanted_binding("none"), 1) == [Place()]


@pytest.mark.parametrize(
    ("num_procs", "nodes"), [(1, [0]), (2, [0, 1]), (3, [0, 0, 1]), (4, [0, 0, 1, 1])]
)
def test_numa_gives_each_process_one_node(num_procs, nodes):
    found = places(TWO, wanted_binding("numa"), num_procs)
    assert [place.memory_nodes for place in found] == [(node,) for node in nodes]
    assert [place.cpus for place in found] == [TWO.nodes[node] for node in nodes]


@pytest.mark.parametrize("num_procs", range(1, 20))
def test_cpus_are_shared_evenly_and_all_of_them(num_procs):
    found = [place.cpus for place in places(TWO, wanted_binding("cpus"), num_procs)]
    assert {cpu for cpus in found for cpu in cpus} == set(TWO.cpus)
    assert max(map(len, found)) - min(map(len, found)) <= 1
    if num_procs <= 8:
        assert sum(map(len, found)) == 8  # none twice


def test_each_process_can_be_given_its_own():
    wanted = wanted_binding([
        {"cpunodebind": "1", "membind": "0-1"},
        {"physcpubind": "0,2-3"},
        {"cpunodebind": "0", "cpus": "3-5"},
        {},
    ])  # fmt: skip
    assert places(TWO, wanted, 4) == [
        Place((4, 5, 6, 7), (0, 1)), Place((0, 2, 3)), Place((3,)), Place(),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("proc_bind", "why"),
    [
        ("sockets", "'numa', 'cpus', or numactl's words"),
        ([{"cpubind": "0"}], r"\['cpubind'\]"),
        ([{"cpus": "0-x"}], "is no list of numbers"),
    ],
)
def test_what_means_nothing_is_refused_at_once(proc_bind, why):
    with pytest.raises(ConfigError, match=why):
        wanted_binding(proc_bind)


@pytest.mark.parametrize(
    ("each", "why"),
    [
        ([{"cpus": "9"}], r"no CPU 9 to bind to: one of \(0, 1"),
        ([{"membind": "2"}], "no NUMA node 2"),
        ([{}, {}], "one for each of the 1 on a host"),
    ],
)
def test_what_the_host_does_not_have_is_refused_there(each, why):
    with pytest.raises(ConfigError, match=why):
        places(TWO, Binding("each", tuple(each)), 1)


def test_lists_read_as_the_kernel_writes_them():
    assert parse_list("0-2,5,7-8\n") == (0, 1, 2, 5, 7, 8)
    assert parse_list("") == ()


def test_nodes_are_read_from_the_kernel_s_files(tmp_path):
    allowed = sorted(os.sched_getaffinity(0))
    for node, cpus in ((0, allowed[:1]), (1, allowed[1:]), (2, [10_000])):
        (tmp_path / f"node{node}").mkdir()
        (tmp_path / f"node{node}" / "cpulist").write_text(",".join(map(str, cpus)) + "\n")
    found = read_topology(tmp_path).nodes
    assert found[0] == (allowed[0],)
    assert 2 not in found  # none of its CPUs may be used
    assert read_topology(tmp_path / "nowhere").nodes == {0: tuple(allowed)}
    assert set(read_topology().cpus) <= set(allowed)
