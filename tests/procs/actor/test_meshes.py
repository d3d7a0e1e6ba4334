"""Meshes of real processes: how they begin, end, and are referred to (P-5, P-6, A-7, A-10)."""

from __future__ import annotations

import os
import socket
import stat
import threading

import pytest

from danaus.actor import (
    Actor,
    MeshFailure,
    SupervisionError,
    concurrent_endpoint,
    context,
    current_rank,
    endpoint,
    this_host,
    this_proc,
)
from danaus.actor.process_runtime import get_runtime
from danaus.core.errors import ConfigError
from danaus.testing.hosts import Hosts
from danaus.wire.address import Address
from danaus.wire.position import Phase

LIMIT_S = 20.0


class Plain(Actor):
    def __init__(self) -> None:
        self.seen: list[int] = []

    @endpoint
    def note_all(self, k: int) -> int:
        assert self.seen == list(range(k))
        self.seen.append(k)
        return len(self.seen)

    @endpoint
    def rank(self) -> int:
        return current_rank().rank

    @endpoint
    def variable(self, name: str) -> str | None:
        return os.environ.get(name)

    @endpoint
    def say(self, text: str) -> None:
        print(text)

    @endpoint
    def move(self, step: int) -> tuple[str, int, str]:
        proc = context().proc
        proc.position.write(step, Phase.COMPUTE, 7)
        return proc.host, proc.incarnation, proc.agent_address


class Asker(Actor):
    """Calls another mesh that it is given a reference to."""

    @endpoint
    def ask(self, others) -> list[int]:
        return list(others.rank.call().get(LIMIT_S).values())

    @endpoint
    async def ask_async(self, others) -> list[int]:
        return list((await others.rank.call()).values())

    @endpoint
    def hand_back(self):
        return self.mine()

    def mine(self):
        return this_proc().spawn("inner", Plain)


class Broken(Actor):
    def __init__(self) -> None:
        raise ValueError("cannot be made")

    @endpoint
    def never(self) -> None: ...


class Tidy(Actor):
    """Notes its end in a file, and owns a mesh of its own kind."""

    def __init__(self, path: str, name: str) -> None:
        self.path, self.name = path, name
        self.owned = None

    @endpoint
    def own(self, procs: int) -> dict[str, int]:
        mesh = this_host().spawn_procs({"r": procs}, name=f"below-{os.getpid()}")
        self.owned = mesh.spawn("below", Tidy, self.path, "below")
        self.owned.initialized.get(LIMIT_S)
        return mesh.pids()

    @endpoint
    def work(self, gate: bool) -> None:
        self.note("worked")

    def note(self, what: str) -> None:
        with open(self.path, "a") as file:
            file.write(f"{self.name} {what}\n")

    def __cleanup__(self, exc) -> None:
        self.note("cleaned up")


class Keeper(Actor):
    """Supervises what it spawns; in this process."""

    def __init__(self, answer) -> None:
        self.told: list[MeshFailure] = []
        self.answer = answer

    @endpoint
    def spawn(self, hosts, procs: int) -> dict[str, int]:
        mesh = hosts.spawn_procs({"r": procs}, name="kept")
        mesh.initialized.get(LIMIT_S)
        return mesh.pids()

    def __supervise__(self, failure):
        self.told.append(failure)
        return self.answer(failure)


def test_processes_have_names_pids_and_a_table(two):
    procs = two.hosts.spawn_procs({"gpus": 2}, name="w", env={"DANAUS_TEST": "yes"})
    assert procs.sizes == {"hosts": 2, "gpus": 2}
    assert procs.process_ids == ("host0/w/0#0", "host0/w/1#0", "host1/w/2#0", "host1/w/3#0")
    procs.initialized.get(LIMIT_S)
    pids = procs.pids()
    assert tuple(pids) == procs.process_ids
    assert len(set(pids.values())) == 4
    assert [line.split()[1] for line in procs.to_table().splitlines()] == list(pids)
    actors = procs.spawn("plain", Plain)
    assert set(actors.variable.call("DANAUS_TEST").get(LIMIT_S).values()) == {"yes"}
    part = procs.slice(hosts=1).spawn("part", Plain)
    assert part.rank.call().get(LIMIT_S).values() == (0, 1)


def test_stopping_waits_for_what_is_at_hand_and_cleans_up_what_is_owned_first(one, tmp_path):
    path = str(tmp_path / "notes")
    procs = one.host(0).spawn_procs(name="w")
    tidy = procs.spawn("tidy", Tidy, path, "above")
    below = tidy.own.call_one(1).get(LIMIT_S)
    watched = [one.watch(pid) for pid in (*below.values(), *procs.pids().values())]
    for _ in range(3):
        tidy.work.broadcast(True)
    tidy.stop().get(LIMIT_S)
    assert (tmp_path / "notes").read_text().splitlines() == [
        *["above worked"] * 3,
        "below cleaned up",
        "above cleaned up",
    ]
    assert watched[0].ends_within(LIMIT_S)
    procs.stop().get(LIMIT_S)
    assert watched[1].ends_within(LIMIT_S)
    assert not one.has_failed


def test_stopping_a_process_cleans_up_its_actors(one, tmp_path):
    procs = one.host(0).spawn_procs({"r": 2}, name="w")
    tidy = procs.spawn("tidy", Tidy, str(tmp_path / "notes"), "each")
    tidy.initialized.get(LIMIT_S)
    procs.stop().get(LIMIT_S)
    assert (tmp_path / "notes").read_text().splitlines() == ["each cleaned up"] * 2
    assert not one.has_failed
    with pytest.raises(ExceptionGroup):
        tidy.work.call(True).get(LIMIT_S)


def test_what_a_dead_worker_owned_ends_with_it(two, tmp_path):
    procs = two.host(0).spawn_procs(name="w")
    tidy = procs.spawn("tidy", Tidy, str(tmp_path / "notes"), "above")
    below = tidy.own.call_one(2).get(LIMIT_S)
    watched = [two.watch(pid) for pid in below.values()]
    procs.kill().get(LIMIT_S)
    assert all(each.ends_within(LIMIT_S) for each in watched)
    assert not two.has_failed


def test_actors_of_a_dead_owner_are_stopped_in_processes_of_others(two, tmp_path):
    theirs = two.host(1).spawn_procs(name="theirs")
    mine = two.host(0).spawn_procs(name="mine")
    spawner = mine.spawn("spawner", Spawner, str(tmp_path / "notes"))
    spawner.spawn_on.call_one(theirs).get(LIMIT_S)
    os.mkfifo(tmp_path / "notes")
    mine.kill()
    with open(tmp_path / "notes") as notes:  # blocks until the actor has been told to clean up
        assert notes.readline() == "guest cleaned up\n"


class Spawner(Actor):
    def __init__(self, path: str) -> None:
        self.path = path

    @endpoint
    def spawn_on(self, procs) -> None:
        self.guest = procs.spawn("guest", Tidy, self.path, "guest")
        self.guest.initialized.get(LIMIT_S)


def test_references_work_from_any_process(two):
    plain = two.hosts.spawn_procs({"r": 2}, name="w").spawn("plain", Plain)
    asker = two.host(1).spawn_procs(name="a").spawn("asker", Asker)
    assert asker.ask.call_one(plain).get(LIMIT_S) == [0, 1, 2, 3]
    assert asker.ask_async.call_one(plain.slice(hosts=1)).get(LIMIT_S) == [2, 3]
    here = this_proc().spawn("here", Plain)
    assert asker.ask.call_one(here).get(LIMIT_S) == [0]
    inner = asker.hand_back.call_one().get(LIMIT_S)
    assert inner.rank.call_one().get(LIMIT_S) == 0
    with pytest.raises(ConfigError, match="ask its owner"):
        inner.stop()


def test_a_reference_to_what_is_gone_ends_in_a_supervision_error_everywhere(two):
    procs = two.host(0).spawn_procs({"r": 2}, name="w")
    plain = procs.spawn("plain", Plain)
    asker = two.host(1).spawn_procs(name="a").spawn("asker", Asker)
    assert asker.ask.call_one(plain).get(LIMIT_S) == [0, 1]
    procs.kill().get(LIMIT_S)
    with pytest.raises(Exception, match="ended by SIGKILL"):
        asker.ask.call_one(plain).get(LIMIT_S)
    late = two.host(1).spawn_procs(name="late").spawn("asker", Asker)
    with pytest.raises(Exception, match="ended by SIGKILL"):
        late.ask.call_one(plain).get(LIMIT_S)


def test_a_constructor_that_raises_is_a_failure_of_the_actor(one):
    broken = one.host(0).spawn_procs(name="w").spawn("broken", Broken)
    with pytest.raises(Exception, match="cannot be made"):
        broken.initialized.get(LIMIT_S)
    failure = one.failure()
    assert (failure.mesh, failure.kind) == ("broken", "exception")
    with pytest.raises(SupervisionError, match="its constructor raised ValueError"):
        broken.never.call_one().get(LIMIT_S)


def test_an_owner_in_this_process_is_told_and_may_handle_it(one):
    keeper = Keeping(one, lambda failure: True)
    failure = keeper.lose_one()
    assert (failure.mesh, failure.kind, failure.signal) == ("kept", "signal", "SIGKILL")
    assert failure.ranks == (1,)
    assert not one.has_failed


def test_what_an_owner_does_not_handle_reaches_the_root(one):
    keeper = Keeping(one, lambda failure: None)
    keeper.lose_one()
    assert one.failure().mesh == "kept"


def test_an_owner_that_raises_replaces_the_failure(one):
    def fail(failure):
        raise RuntimeError("cannot cope")

    Keeping(one, fail).lose_one()
    failure = one.failure()
    assert (failure.mesh, failure.kind) == ("keeper", "exception")
    assert failure.cause.mesh == "kept"
    assert "cannot cope" in failure.report()


class Keeping:
    def __init__(self, hosts, answer) -> None:
        self.told = threading.Event()
        self.failures: list[MeshFailure] = []

        def supervise(failure):
            self.failures.append(failure)
            self.told.set()
            return answer(failure)

        self.hosts = hosts
        self.keeper = this_proc().spawn("keeper", Keeper, supervise)

    def lose_one(self) -> MeshFailure:
        pids = self.keeper.spawn.call_one(self.hosts.host(0), 2).get(LIMIT_S)
        os.kill(pids["host0/kept/1#0"], 9)
        assert self.told.wait(LIMIT_S)
        return self.failures[0]


def test_a_worker_writes_to_its_own_log_which_can_be_shown_here(one):
    procs = one.host(0).spawn_procs({"r": 2}, name="w")
    plain = procs.spawn("plain", Plain)
    plain.say.call("before").get(LIMIT_S)
    assert one.log("host0-w-0#0") == "before\n"
    shown = threading.Event()
    lines: dict[str, list[str]] = {}

    def sink(process_id, said):
        lines.setdefault(process_id, []).extend(said)
        if "shown" in said:
            shown.set()

    get_runtime().log_sink = sink
    procs.logging_option()
    plain.slice(r=1).say.call_one("shown").get(LIMIT_S)
    assert shown.wait(LIMIT_S)
    assert lines["host0/w/1#0"] == ["before", "shown"]


def test_stopping_many_takes_the_time_of_stopping_one(one):
    procs = one.host(0).spawn_procs({"r": 12}, name="w")
    stuck = procs.spawn("stuck", Stuck)
    stuck.hang.broadcast()
    procs.initialized.get(LIMIT_S)
    stuck.here.call().get(LIMIT_S)
    watched = [one.watch(pid) for pid in procs.pids().values()]
    procs.stop(grace_s=0.2).get(3.0)  # one after the other they would take far longer
    assert all(each.ends_within(0.1) for each in watched)


class Stuck(Actor):
    """Does not end when asked: it is terminated."""

    @endpoint
    def hang(self) -> None:
        threading.Event().wait()

    @concurrent_endpoint
    async def here(self) -> None: ...


def test_everything_works_over_tcp_too(tmp_path, request):
    bind = Address.parse("tcp:127.0.0.1:0")
    with Hosts(2, tmp_path, module=request.module, bind=bind) as hosts:
        plain = hosts.hosts.spawn_procs({"r": 1}, name="w").spawn("plain", Plain)
        asker = hosts.host(1).spawn_procs(name="a").spawn("asker", Asker)
        assert asker.ask.call_one(plain).get(LIMIT_S) == [0, 1]
        here = this_proc().spawn("here", Plain)
        assert asker.ask.call_one(here).get(LIMIT_S) == [0]


def test_calls_survive_the_loss_of_their_connection(one):
    plain = one.host(0).spawn_procs(name="w").spawn("plain", Plain)
    plain.note_all.call_one(0).get(LIMIT_S)
    answers = []
    for k in range(1, 200):
        answers.append(plain.note_all.call_one(k))
        if k % 50 == 0:
            answers[-1 if k == 50 else -10].get(LIMIT_S)  # there is a connection again
            assert cut_connections("host0-w") > 0
    assert [answer.get(LIMIT_S) for answer in answers] == list(range(2, 201))
    assert not one.has_failed


def cut_connections(part_of_path: str) -> int:
    """Shut down this process's connections to sockets whose path holds these words."""
    cut = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            number = os.dup(int(name))
        except OSError:
            continue  # the listing's own
        if not stat.S_ISSOCK(os.fstat(number).st_mode):
            os.close(number)
            continue
        with socket.socket(fileno=number) as sock:
            try:
                if part_of_path in str(sock.getpeername()):
                    sock.shutdown(socket.SHUT_RDWR)
                    cut += 1
            except OSError:
                continue  # it listens
    return cut


def test_a_job_ends_its_hosts_whatever_fails_on_the_way(one, monkeypatch):
    agent = one.watch(one.job.agent_pids()["host0"])

    def leave(job: str) -> None:
        raise TimeoutError(f"leaving {job} took too long")

    monkeypatch.setattr(get_runtime().connections, "leave", leave)
    with pytest.raises(TimeoutError, match="took too long"):
        one.job.kill()
    assert agent.ends_within(LIMIT_S)
