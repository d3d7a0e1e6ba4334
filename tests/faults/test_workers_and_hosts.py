"""Workers, nurseries and agents are killed and stopped; what becomes of the rest (P-1, P-7)."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from danaus.actor import Actor, SupervisionError, concurrent_endpoint, context, endpoint
from danaus.actor.procfs import read_stat
from danaus.testing.hosts import wait_for_state
from danaus.wire.address import Address
from danaus.wire.lifecycle import (
    FROM_AGENT,
    TO_AGENT,
    KillProcess,
    PositionsSeen,
    ProcessExited,
    WatchProcess,
)
from danaus.wire.position import Phase
from danaus.wire.secret import Secret
from danaus.wire.session import open_session

LIMIT_S = 20.0
SOON_S = 4.5  # within the heartbeat limit of 5 s: the kernel has told, not silence


class Trainer(Actor):
    def __init__(self) -> None:
        self.gate = threading.Event()
        self.begun = threading.Event()

    @endpoint
    def train(self, words: str = "") -> None:
        """Run for hours."""
        print(words, flush=True)
        self.begun.set()
        self.gate.wait()

    @concurrent_endpoint
    def has_begun(self) -> bool:
        return self.begun.wait(LIMIT_S)

    @concurrent_endpoint
    def leave(self, code: int) -> None:
        sys.exit(code)

    @concurrent_endpoint
    def at(self, step: int, phase: int) -> None:
        context().proc.position.write(step, Phase(phase), 0)

    @concurrent_endpoint
    async def alive(self) -> int:
        return os.getpid()


def start(hosts, number: int = 0, *, name: str = "w", ranks: int = 2, incarnation: int = 0):
    procs = hosts.host(number).spawn_procs({"r": ranks}, name=name, incarnation=incarnation)
    trainers = procs.spawn("trainer", Trainer)
    trainers.initialized.get(LIMIT_S)
    return procs, trainers


# -- workers -----------------------------------------------------------------------------------


def test_a_killed_worker_ends_calls_and_is_told_to_its_owner_with_its_last_words(one):
    procs, trainers = start(one)
    call = trainers.slice(r=1).train.call_one("last words")
    assert trainers.slice(r=1).has_begun.call_one().get(LIMIT_S)
    pid = procs.pids()["host0/w/1#0"]
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(SupervisionError) as caught:
        call.get(LIMIT_S)
    failure = one.failure(SOON_S)
    assert caught.value.signal == failure.signal == "SIGKILL"
    assert caught.value.log_tail == failure.log_tail == ("last words",)
    assert (failure.kind, failure.ranks, failure.mesh) == ("signal", (1,), "w")
    assert failure.process_ids == ("host0/w/1#0",)
    assert trainers.slice(r=0).alive.call_one().get(LIMIT_S) == procs.pids()["host0/w/0#0"]
    with pytest.raises(SupervisionError, match="ended by SIGKILL"):
        trainers.slice(r=1).alive.call_one().get(LIMIT_S)


@pytest.mark.strict
def test_the_owner_knows_of_a_killed_worker_within_100_ms(one):
    procs, trainers = start(one)
    call = trainers.slice(r=0).train.call_one()
    trainers.alive.call().get(LIMIT_S)
    begin = time.monotonic()
    os.kill(procs.pids()["host0/w/0#0"], signal.SIGKILL)
    call.exception(LIMIT_S)
    one.failure()
    assert time.monotonic() - begin < 0.1


@pytest.mark.parametrize("code", [0, 3])
def test_a_worker_that_exits_is_told_with_its_exit_code(one, code):
    _, trainers = start(one)
    call = trainers.slice(r=0).train.call_one()
    trainers.slice(r=0).leave.broadcast(code)
    failure = one.failure()
    assert (failure.kind, failure.exit_code, failure.signal) == ("exit", code, None)
    assert isinstance(call.exception(LIMIT_S), SupervisionError)


def test_a_restart_of_a_rank_set_costs_a_fork(one):
    procs, _ = start(one)
    nursery = one.nursery_pid(0)
    procs.kill().get(LIMIT_S)
    _, trainers = start(one, incarnation=1)
    pids = set(trainers.alive.call().get(LIMIT_S).values())
    assert len(pids) == 2
    assert {read_stat(pid).parent for pid in pids} == {nursery}
    assert not one.has_failed


def test_a_stopped_worker_is_seen_to_stand_still_and_fenced_as_hung(one):
    procs, trainers = start(one)
    stopped, busy = procs.process_ids
    call = trainers.train.settled()
    trainers.at.call(7, Phase.COMPUTE).get(LIMIT_S)
    os.kill(procs.pids()[stopped], signal.SIGSTOP)
    assert wait_for_state(procs.pids()[stopped], "T")

    async def watch():
        async with Watcher(one, procs) as watcher:
            await watcher.say(WatchProcess(stopped), WatchProcess(busy))
            async for seen in watcher.positions():
                by_name = {each.process_id: each for each in seen.positions}
                if len(by_name) == 2 and by_name[stopped].still_s > 0.3:
                    break
            assert (by_name[stopped].step, by_name[stopped].phase) == (7, Phase.COMPUTE)
            assert not by_name[stopped].waiting
            reason = "stood still at step 7"
            await watcher.say(KillProcess(stopped, reason, save_stacks=True))
            return await watcher.exit_of(stopped)

    exited = asyncio.run(watch())
    assert exited.signal == "SIGKILL"
    assert "stood still at step 7" in exited.reason
    failure = one.failure()
    assert (failure.kind, failure.ranks) == ("hang", (0,))
    assert not call.done()
    assert "no stacks: the process is stopped" in one.log("host0-w-0#0")


def test_a_hung_worker_s_stacks_are_saved_before_it_is_killed(one):
    procs, trainers = start(one, ranks=1)
    trainers.train.broadcast("hanging")
    trainers.alive.call().get(LIMIT_S)
    (name,) = procs.process_ids

    async def fence():
        async with Watcher(one, procs) as watcher:
            await watcher.say(KillProcess(name, "hang: no progress", save_stacks=True))
            return await watcher.exit_of(name)

    assert asyncio.run(fence()).reason == "hang: no progress"
    failure = one.failure()
    assert failure.kind == "hang"
    assert "in train" in one.log("host0-w-0#0")


def test_a_watcher_that_comes_late_learns_of_the_end(one):
    procs, _ = start(one, ranks=1)
    (name,) = procs.process_ids
    procs.kill().get(LIMIT_S)

    async def ask():
        async with Watcher(one, procs) as watcher:
            await watcher.say(WatchProcess(name), WatchProcess("host0/never/0#0"))
            return await watcher.exit_of(name), await watcher.exit_of("host0/never/0#0")

    known, unknown = asyncio.run(ask())
    assert known.signal == "SIGKILL"
    assert (unknown.signal, unknown.exit_code, unknown.reason) == (None, None, "not running here")


class Watcher:
    """A session with a host agent, as the quorum service has one."""

    def __init__(self, hosts, procs) -> None:
        self._address = Address.parse(procs.agent_addresses[0])
        self._secret = Secret.load(hosts.run_dir / "secret")
        self._exits: dict[str, ProcessExited] = {}

    async def __aenter__(self):
        self._session = await open_session(self._address, self._secret, b"a watcher")
        return self

    async def __aexit__(self, *_):
        await self._session.close()

    async def say(self, *messages) -> None:
        for message in messages:
            self._session.send([TO_AGENT.encode(message)])

    async def positions(self):
        async with asyncio.timeout(LIMIT_S):
            async for parts in self._session:
                message = FROM_AGENT.decode(parts[0])
                if isinstance(message, PositionsSeen):
                    yield message

    async def exit_of(self, process_id: str) -> ProcessExited:
        async with asyncio.timeout(LIMIT_S):
            while process_id not in self._exits:
                message = FROM_AGENT.decode((await self._session.receive())[0])
                if isinstance(message, ProcessExited):
                    self._exits[message.process_id] = message
        return self._exits[process_id]


# -- nurseries ---------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_workers_go_on_without_their_nursery_and_a_new_one_is_started(one, how):
    procs, trainers = start(one)
    pids = procs.pids()
    old = one.watch(one.nursery_pid(0))
    old.signal(how)
    assert old.ends_within(LIMIT_S)  # a stopped one is killed by the agent
    assert trainers.alive.call().get(LIMIT_S).values() == tuple(pids.values())
    start(one, name="again")
    os.kill(pids["host0/w/1#0"], signal.SIGKILL)
    failure = one.failure()
    assert (failure.kind, failure.ranks, failure.signal) == ("signal", (1,), "SIGKILL")
    trainers.slice(r=0).leave.broadcast(5)
    assert one.failure().exit_code == 5
    assert one.nursery_pid(0) != old.pid


def test_a_worker_asked_for_while_the_nursery_is_stopped_is_started(one):
    start(one)
    nursery = one.watch(one.nursery_pid(0))
    nursery.signal(signal.SIGSTOP)
    assert wait_for_state(nursery.pid, "T")
    _, trainers = start(one, name="asked")
    assert len(trainers.alive.call().get(LIMIT_S)) == 2
    assert nursery.ends_within(LIMIT_S)


def test_an_exit_is_reported_while_the_nursery_is_stopped(one):
    procs, _ = start(one)
    nursery = one.watch(one.nursery_pid(0))
    nursery.signal(signal.SIGSTOP)
    os.kill(procs.pids()["host0/w/0#0"], signal.SIGKILL)
    failure = one.failure(SOON_S)
    assert failure.signal == "SIGKILL"
    assert nursery.ends_within(LIMIT_S)


# -- agents ------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_host_whose_agent_is_gone_is_lost_with_its_workers_and_can_be_replaced(make_hosts, how):
    hosts = make_hosts(2)
    hosts.job.heartbeat_limit_s = 1.0
    with hosts:
        procs, trainers = start(hosts, 1)
        _, others = start(hosts, 0, name="others")
        call = trainers.train.settled()
        trainers.alive.call().get(LIMIT_S)
        gone = [hosts.watch(pid) for pid in (*procs.pids().values(), hosts.nursery_pid(1))]
        gone[0].signal(signal.SIGSTOP)  # a stopped worker dies with its host all the same
        os.kill(hosts.job.agent_pids()["host1"], how)
        failure = hosts.failure()
        assert (failure.kind, failure.mesh, failure.ranks) == ("host_lost", "w", (0, 1))
        assert all(each.ends_within(LIMIT_S) for each in gone)
        errors = [outcome.error for outcome in call.get(LIMIT_S).values()]
        assert all("host host1 is lost" in str(error) for error in errors)
        assert len(others.alive.call().get(LIMIT_S)) == 2
        host = hosts.job.replace("hosts", 1)
        again = host.spawn_procs({"r": 2}, name="w", incarnation=1).spawn("trainer", Trainer)
        assert len(again.alive.call().get(LIMIT_S)) == 2

        async def ask():
            async with Watcher(hosts, procs) as watcher:
                await watcher.say(WatchProcess(procs.process_ids[0]))
                return await watcher.exit_of(procs.process_ids[0])

        assert asyncio.run(ask()).reason == "not running here"
        assert not hosts.has_failed


def test_a_mesh_spawned_on_a_lost_host_fails_at_once(one):
    start(one)
    os.kill(one.job.agent_pids()["host0"], signal.SIGKILL)
    assert one.failure().kind == "host_lost"
    late = one.host(0).spawn_procs(name="late")
    with pytest.raises(SupervisionError, match="is lost"):
        late.initialized.get(LIMIT_S)
    assert one.failure().mesh == "late"


def test_an_agent_that_is_stopped_for_a_moment_is_not_lost(one):
    procs, trainers = start(one)
    agent = one.job.agent_pids()["host0"]
    os.kill(agent, signal.SIGSTOP)
    assert wait_for_state(agent, "T")
    assert len(trainers.alive.call().get(LIMIT_S)) == 2  # calls do not go through the agent
    os.kill(agent, signal.SIGCONT)
    os.kill(procs.pids()["host0/w/0#0"], signal.SIGKILL)
    assert one.failure().kind == "signal"


def test_a_new_agent_ends_what_an_old_one_left(one):
    procs, _ = start(one)
    left = [one.watch(pid) for pid in procs.pids().values()]
    folder = Path(one.host(0).hosts[0].agent_address.removeprefix("unix:")).parent
    assert len(list(folder.glob("host0-w*"))) == 2
    one.job.replace("hosts", 0)
    assert all(each.ends_within(LIMIT_S) for each in left)
    assert not [*folder.glob("host0-w*"), *one.run_dir.rglob("*.position")]
    assert one.failure().kind == "host_lost"


def test_a_host_whose_folder_is_gone_starts_workers_all_the_same(one):
    _, trainers = start(one)
    shutil.rmtree(one.run_dir / "control" / "agents" / "host0")
    late = one.host(0).spawn_procs(name="late")
    late.initialized.get(LIMIT_S)  # its position is in memory without a file
    assert len(trainers.alive.call().get(LIMIT_S)) == 2


def test_a_host_whose_own_logs_do_not_fit_on_the_disk_goes_on(make_hosts, tmp_path):
    (tmp_path / "logs").mkdir()
    for name in ("agent-host0", "nursery-host0"):
        (tmp_path / "logs" / f"{name}.log").symlink_to("/dev/full")
    with make_hosts(1) as hosts:
        _, trainers = start(hosts)
        nursery = hosts.watch(hosts.nursery_pid(0))
        nursery.signal(signal.SIGKILL)  # which the agent notes
        assert nursery.ends_within(LIMIT_S)
        start(hosts, name="again")
        assert len(trainers.alive.call().get(LIMIT_S)) == 2


def test_a_stopped_worker_that_is_asked_to_end_is_killed_after_the_grace(one):
    procs, _ = start(one)
    pid = procs.pids()["host0/w/0#0"]
    ends = one.watch(pid)
    os.kill(pid, signal.SIGSTOP)
    assert wait_for_state(pid, "T")
    procs.stop(grace_s=0.1).get(LIMIT_S)
    assert ends.ends_within(0.1)
    assert not one.has_failed


def test_a_worker_that_prints_onto_a_full_disk_goes_on(one):
    procs, trainers = start(one, ranks=1)
    full = one.host(0).spawn_procs(name="full").spawn("printer", Printer)
    assert full.fill.call_one().get(LIMIT_S) == "went on"
    assert len(trainers.alive.call().get(LIMIT_S)) == len(procs)


class Printer(Actor):
    @endpoint
    def fill(self) -> str:
        with open("/dev/full", "w") as device:
            os.dup2(device.fileno(), 1)
        print("does not fit", flush=True)
        return "went on"
