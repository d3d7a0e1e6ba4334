"""How processes are started and stopped: environment, places, what they call first (P-5, P-6)."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
import threading

import pytest

from danaus.actor import Actor, SupervisionError, context, endpoint, this_host
from danaus.actor.process_runtime import get_runtime
from danaus.core.errors import ConfigError
from danaus.testing.hosts import Hosts

LIMIT_S = 20.0
CPUS = sorted(os.sched_getaffinity(0))


class Looker(Actor):
    @endpoint
    def variable(self, name: str) -> str | None:
        return os.environ.get(name)

    @endpoint
    def affinity(self) -> list[int]:
        return sorted(os.sched_getaffinity(0))

    @endpoint
    def say(self, text: str) -> None:
        print(text)
        logging.getLogger("a.b").info("informed of %s", text)

    @endpoint
    def pid(self) -> int:
        return os.getpid()

    @endpoint
    def collector(self) -> tuple[bool, bool, int]:
        """Return whether it ran during imports, whether it runs, and what it leaves alone."""
        return sys.modules["preloaded"].collects, gc.isenabled(), gc.get_freeze_count()

    @endpoint
    def ignored(self) -> set[int]:
        """Return the signals that the kernel drops, but for the C library's own."""
        with open("/proc/self/status") as status:
            (line,) = (each for each in status if each.startswith("SigIgn:"))
        mask = int(line.split()[1], 16)
        return {number for number in signal.valid_signals() if mask >> (number - 1) & 1}

    @endpoint
    def was_prepared(self) -> str:
        return vars(sys).get("prepared", "")


def spawn(one, **options):
    procs = one.host(0).spawn_procs({"gpus": 2}, name="w", **options)
    return procs, procs.spawn("looker", Looker)


def test_signals_mean_what_they_do_elsewhere_whatever_the_parent_ignores(one):
    _, lookers = spawn(one)
    assert lookers.ignored.call().get(LIMIT_S).values() == ({signal.SIGPIPE},) * 2


def test_each_rank_can_have_an_environment_of_its_own(one):
    _, lookers = spawn(one, env=lambda point: {"PLACE": f"{point['gpus']} of {point.size()}"})
    assert lookers.variable.call("PLACE").get(LIMIT_S).values() == ("0 of 2", "1 of 2")
    procs = one.host(0).spawn_procs(name="v", env={"PLACE": "all"})
    assert procs.spawn("looker", Looker).variable.call_one("PLACE").get(LIMIT_S) == "all"


def test_processes_that_are_stopped_before_they_are_there_end(one):
    _, lookers = spawn(one)
    lookers.pid.call().get(LIMIT_S)  # whoever comes now comes at once
    for _ in range(5):
        one.host(0).spawn_procs({"gpus": 2}).stop().get(LIMIT_S)


def test_the_collector_runs_in_a_worker_and_leaves_what_its_nursery_has_imported(
    tmp_path, monkeypatch, request
):
    (tmp_path / "preloaded.py").write_text("import gc\ncollects = gc.isenabled()\n")
    monkeypatch.syspath_prepend(tmp_path)
    with Hosts(1, tmp_path / "run", module=request.module, preload=("preloaded",)) as one:
        _, lookers = spawn(one)
        for during_imports, now, left_alone in lookers.collector.call().get(LIMIT_S).values():
            assert not during_imports
            assert now
            assert left_alone > 10_000


def test_processes_are_bound_after_the_fork(one):
    _, lookers = spawn(one, proc_bind="cpus")
    found = lookers.affinity.call().get(LIMIT_S).values()
    assert {cpu for cpus in found for cpu in cpus} == set(CPUS)
    one_cpu = [{"physcpubind": str(CPUS[-1])}]
    procs = one.host(0).spawn_procs(name="v", proc_bind=one_cpu)
    assert procs.spawn("looker", Looker).affinity.call_one().get(LIMIT_S) == [CPUS[-1]]
    numa = one.host(0).spawn_procs(name="n", proc_bind="numa").spawn("looker", Looker)
    assert set(numa.affinity.call_one().get(LIMIT_S)) <= set(CPUS)


def test_a_place_that_the_host_does_not_have_is_a_failure_with_its_reason(one):
    procs = one.host(0).spawn_procs(name="w", proc_bind=[{"cpus": "100000"}])
    with pytest.raises(SupervisionError, match="no CPU 100000 to bind to"):
        procs.initialized.get(LIMIT_S)
    assert "no CPU 100000" in one.failure().reason


def test_a_bootstrap_is_called_before_any_message_and_knows_where_it_is(one):
    where = "in "

    def prepare() -> None:
        vars(sys)["prepared"] = where + context().proc.process_id

    _, lookers = spawn(one, bootstrap=prepare)
    expected = ("in host0/w/0#0", "in host0/w/1#0")
    assert lookers.was_prepared.call().get(LIMIT_S).values() == expected
    left = [path.name for path in (one.run_dir / "control").rglob("*.bootstrap")]
    assert left == []


def test_a_bootstrap_may_be_async(one):
    async def prepare() -> None:
        vars(sys)["prepared"] = "async"

    _, lookers = spawn(one, bootstrap=prepare)
    assert lookers.was_prepared.call().get(LIMIT_S).values() == ("async",) * 2


def test_a_bootstrap_that_raises_ends_its_process_and_says_why(one):
    def prepare() -> None:
        raise RuntimeError("no such device")

    procs, lookers = spawn(one, bootstrap=prepare)
    with pytest.raises(SupervisionError, match="no such device"):
        procs.initialized.get(LIMIT_S)
    failure = one.failure()
    assert (failure.kind, failure.exit_code) == ("exit", 1)
    assert "RuntimeError: no such device" in failure.log_tail
    with pytest.raises(SupervisionError):
        lookers.slice(gpus=0).affinity.call_one().get(LIMIT_S)


def test_what_bootstrap_closes_over_must_pickle(one):
    lock = threading.Lock()
    with pytest.raises(TypeError, match="pickle"):
        one.host(0).spawn_procs(name="w", bootstrap=lambda: lock)


def test_stopping_hosts_stops_what_runs_there_and_leaves_them(two):
    here = two.host(0).spawn_procs(name="a")
    there = two.host(1).spawn_procs(name="b")
    both = two.hosts.spawn_procs(name="c")
    for procs in (here, there, both):
        procs.initialized.get(LIMIT_S)
    watched = {pid: two.watch(pid) for procs in (here, both) for pid in procs.pids().values()}
    two.host(0).stop().get(LIMIT_S)
    assert all(each.ends_within(LIMIT_S) for each in watched.values())
    assert there.spawn("looker", Looker).affinity.call_one().get(LIMIT_S) == CPUS
    again = two.host(0).spawn_procs(name="d").spawn("looker", Looker)
    assert again.affinity.call_one().get(LIMIT_S) == CPUS
    assert not two.has_failed


def test_shutting_hosts_down_ends_their_agents_too(two):
    procs = two.hosts.spawn_procs(name="a")
    procs.initialized.get(LIMIT_S)
    agents = [two.watch(pid) for pid in two.job.agent_pids().values()]
    two.host(0).shutdown().get(LIMIT_S)
    assert agents[0].ends_within(LIMIT_S)
    assert not agents[1].ends_within(0.0)
    with pytest.raises(SupervisionError):
        two.host(0).spawn_procs(name="b").initialized.get(LIMIT_S)
    assert not two.has_failed or two.failure().mesh == "b"


def test_hosts_of_a_with_block_are_shut_down_at_its_end(two):
    agents = [two.watch(pid) for pid in two.job.agent_pids().values()]

    async def work() -> None:
        async with two.host(1) as host:
            looker = host.spawn_procs(name="a").spawn("looker", Looker)
            assert await looker.affinity.call_one() == CPUS

    asyncio.run(work())
    assert agents[1].ends_within(LIMIT_S)
    assert not agents[0].ends_within(0.0)
    assert not two.has_failed


def test_tables_tell_who_is_who(one):
    procs, _ = spawn(one)
    procs.initialized.get(LIMIT_S)
    rows = procs.to_table().splitlines()
    assert [row.split()[:2] for row in rows] == [
        ["gpus=0", "host0/w/0#0"], ["gpus=1", "host0/w/1#0"],
    ]  # fmt: skip
    assert one.hosts.to_table().split()[:2] == ["hosts=0", "host0"]


def test_a_wish_that_means_nothing_starts_nothing(one):
    with pytest.raises(ConfigError, match="proc_bind"):
        one.host(0).spawn_procs(name="w", proc_bind="sockets")
    one.host(0).spawn_procs(name="w").initialized.get(LIMIT_S)


class Shown:
    """What a reader of logs is shown, until a line comes that ends it."""

    def __init__(self, last: str) -> None:
        self.lines: list[tuple[str, str]] = []
        self.ended = threading.Event()
        self._last = last

    def __call__(self, who: str, lines: tuple[str, ...]) -> None:
        self.lines += [(who, line) for line in lines]
        if any(self._last in line for line in lines):
            self.ended.set()


def test_lines_that_several_processes_write_are_shown_once(one):
    procs, lookers = spawn(one)
    shown = Shown("informed of it")
    get_runtime().log_sink = shown
    lookers.say.call("before").get(LIMIT_S)
    procs.logging_option(aggregate_window_sec=0.3, level=logging.INFO)
    procs.initialized.get(LIMIT_S)
    lookers.affinity.call().get(LIMIT_S)  # behind the level
    lookers.say.call("it").get(LIMIT_S)
    assert shown.ended.wait(LIMIT_S)
    procs.stop().get(LIMIT_S)  # whatever was collected is shown by then
    said = {line for _, line in shown.lines}
    assert said == {"before", "it", "INFO a.b: informed of it"}
    assert any("host0/w/" in who and "and 1 more" in who for who, _ in shown.lines)


def test_lines_can_be_shown_no_longer(one):
    procs, lookers = spawn(one)
    shown = Shown("nothing")
    get_runtime().log_sink = shown
    procs.logging_option()
    procs.logging_option(stream_to_client=False).get(LIMIT_S)
    lookers.say.call("unseen").get(LIMIT_S)
    procs.stop().get(LIMIT_S)
    assert shown.lines == []


def test_the_program_s_own_host_can_be_shut_down_and_had_again(one):
    first = this_host()
    procs = first.spawn_procs(name="w")
    pid = procs.spawn("looker", Looker).pid.call_one().get(LIMIT_S)
    watched = one.watch(pid)
    first.shutdown().get(LIMIT_S)
    assert watched.ends_within(LIMIT_S)
    with pytest.raises(SupervisionError):
        first.spawn_procs(name="v").initialized.get(LIMIT_S)
    again = this_host().spawn_procs(name="w").spawn("looker", Looker)
    assert again.pid.call_one().get(LIMIT_S) != pid
