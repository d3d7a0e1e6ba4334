"""Hosts that wait to be joined: actors on them, who is refused and why, and what ends with whom."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import cloudpickle
import pytest
from tests.procs.cli.terminal import SOURCE, Command
from tests.procs.waiting import machines

from danaus.actor import Actor, SupervisionError, attach_to_workers, endpoint, shutdown_context
from danaus.actor.attached_host import HostTerms
from danaus.core.errors import AddressRefused, ConfigError
from danaus.job import AttachedJob
from danaus.testing.hosts import Watched
from danaus.wire.secret import Secret

LIMIT_S = 30.0
GONE_LIMIT_S = 10.0  # P-4


class Speaker(Actor):
    @endpoint
    def pid(self) -> int:
        return os.getpid()


class Asker(Actor):
    """Calls an actor on another host."""

    def __init__(self, other) -> None:
        self.other = other

    @endpoint
    async def ask(self) -> str:
        try:
            return str(await self.other.pid.call_one())
        except SupervisionError as error:
            return error.why


@pytest.fixture(autouse=True)
def _context_ends(monkeypatch):
    """Send this module by value; a mesh that ends with its host is no failure here."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    # Found by name at each failure, as a program of a user sets it.
    monkeypatch.setitem(vars(sys.modules["danaus.actor"]), "unhandled_fault_hook", lambda _: None)
    yield
    shutdown_context()
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


def speakers(hosts, name="w"):
    return hosts.spawn_procs({"r": 1}, name=name).spawn("speaker", Speaker)


def test_actors_run_on_hosts_that_were_attached(tmp_path):
    with machines(tmp_path, 2) as (one, two):
        hosts = attach_to_workers([one.address, two.address], one.secret)
        assert hosts.sizes == {"hosts": 2}
        pids = dict(speakers(hosts).pid.call().get(LIMIT_S).items())
        living = [one.pids["host0/w/0#0"], two.pids["host1/w/1#0"]]
        assert list(pids.values()) == living
        assert [host.agent_address.rpartition(":")[0] for host in hosts.hosts] == [
            "tcp:127.0.0.2",
            "tcp:127.0.0.3",
        ]


def test_each_host_that_cannot_be_joined_is_named_with_the_reason(tmp_path):
    other = tmp_path / "other-secret"
    Secret.create(other)
    with machines(tmp_path, 2) as (one, two):
        assert two.end() == 0
        with pytest.raises(ConfigError) as caught:
            attach_to_workers([one.address, two.address], other)
    said = str(caught.value)
    assert said.startswith("2 of 2 hosts cannot be joined: ")
    assert f"{one.address}: it does not hold the same secret" in said
    assert f"{two.address}: " in said
    assert "refused" in said.lower()


def test_a_host_works_for_one_job_at_a_time(tmp_path):
    with machines(tmp_path, 1) as (one,):
        secret = tmp_path / "job-secret"
        Secret.create(secret)
        with AttachedJob([one.address], HostTerms(one.secret)):
            other = HostTerms(one.secret, job_secret_path=secret, run_dir=tmp_path)
            with pytest.raises(ConfigError, match="it works for controller/"):
                AttachedJob([one.address], other).apply()
        with AttachedJob([one.address], other) as job:
            assert job.state().hosts.size() == 1


def test_a_run_folder_that_the_host_does_not_see_is_named(tmp_path):
    with machines(tmp_path, 1) as (one,):
        terms = HostTerms(one.secret, run_dir=tmp_path / "elsewhere")
        with pytest.raises(ConfigError, match=r"there is no folder .*elsewhere on m0.* share"):
            AttachedJob([one.address], terms).apply()


def test_a_lost_host_is_joined_again_and_what_it_had_is_ended_first(tmp_path):
    with machines(tmp_path, 1) as (one,), AttachedJob([one.address], HostTerms(one.secret)) as job:
        host = job.state().hosts.slice(hosts=0)
        first = speakers(host)
        old = Watched(first.pid.call_one().get(LIMIT_S))
        before = host.hosts[0].agent_address
        host = job.replace("hosts", 0)
        assert old.ends_within(0.0), "it was fenced before the host was given"
        old.close()
        with pytest.raises(SupervisionError):
            first.pid.call_one().get(LIMIT_S)
        again = host.spawn_procs({"r": 1}, name="w", incarnation=1).spawn("speaker", Speaker)
        assert again.pid.call_one().get(LIMIT_S)
        assert host.hosts[0].agent_address == before, "who watches it there hears of the ends"


def test_a_host_that_was_started_again_can_be_joined_again(tmp_path):
    with machines(tmp_path, 1) as (one,), AttachedJob([one.address], HostTerms(one.secret)) as job:
        family = [Watched(pid) for pid in one.family[1:]]
        one.end(signal.SIGKILL)
        assert all(each.ends_within(GONE_LIMIT_S) for each in family)
        for each in family:
            each.close()
        with pytest.raises(AddressRefused, match=one.address):
            job.replace("hosts", 0)
        one.start()
        assert speakers(job.replace("hosts", 0), name="v").pid.call_one().get(LIMIT_S)


@pytest.mark.timeout(120)
def test_a_link_that_was_lost_in_a_cut_comes_up_again(tmp_path):
    with machines(tmp_path, 2) as (one, two):
        # The program that owns both is more patient than the workers are with each other.
        terms = HostTerms(one.secret, heartbeat_limit_s=60.0)
        with AttachedJob([one.address, two.address], terms) as job:
            hosts = job.state().hosts
            other = speakers(hosts.slice(hosts=1), name="b")
            pid = str(other.pid.call_one().get(LIMIT_S))
            procs = hosts.slice(hosts=0).spawn_procs({"r": 1}, name="a")
            asker = procs.spawn("asker", Asker, other)
            assert asker.ask.call_one().get(LIMIT_S) == pid
            family = two.stop()
            said = asker.ask.call_one().get(LIMIT_S)
            assert "host1 is lost: it was silent for" in said
            for each in reversed(family):
                os.kill(each, signal.SIGCONT)

            def answered() -> bool | None:
                return asker.ask.call_one().get(LIMIT_S) == pid or None

            one.command.wait_until(answered)
            assert answered(), "and stays up"
            assert str(other.pid.call_one().get(LIMIT_S)) == pid, "it lived all the time"


CONTROLLER = """
import sys
sys.path.insert(0, sys.argv[1])
from danaus.actor import Actor, attach, endpoint

class Idle(Actor):
    @endpoint
    def ready(self) -> None: ...

hosts = attach(sys.argv[2], sys.argv[3])
actors = hosts.spawn_procs({"r": 2}, name="w").spawn("idle", Idle)
actors.ready.call().get(30)
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_controller_that_is_gone_leaves_the_host_waiting_and_nothing_else(tmp_path, how):
    with machines(tmp_path, 1) as (one,):
        command = [sys.executable, "-c", CONTROLLER, str(SOURCE), one.address, str(one.secret)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with subprocess.Popen(command, text=True, stderr=subprocess.DEVNULL, **pipes) as controller:
            assert controller.stdout.readline() == "ready\n"
            family = [Watched(pid) for pid in one.family[1:]]
            assert len(family) == 4, "agent, nursery, two workers"
            controller.send_signal(how)
            assert all(each.ends_within(GONE_LIMIT_S) for each in family)
            for each in family:
                each.close()
        one.command.wait_for("is gone since|is done here")
        one.command.wait_until(lambda: one.family == [one.command.pid] or None)
        hosts = attach_to_workers([one.address], one.secret)
        assert speakers(hosts).pid.call_one().get(LIMIT_S)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_host_that_a_person_ends_takes_all_along(tmp_path, how):
    with machines(tmp_path, 1) as (one,), AttachedJob([one.address], HostTerms(one.secret)) as job:
        call = speakers(job.state().hosts).pid.call()
        call.get(LIMIT_S)
        family = [Watched(pid) for pid in one.family[1:]]
        assert one.end(how) == 0
        assert all(each.ends_within(1.0) for each in family)
        for each in family:
            each.close()


def test_a_missing_secret_is_made_for_its_owner_alone_and_said(tmp_path):
    command = ("host", "--listen=tcp:127.0.0.1:0", f"--secret={tmp_path}/new/secret")
    with Command(tmp_path, *command) as host:
        host.wait_for("waits to be joined")
        assert f"scp -p {tmp_path}/new/secret" in host.text
        assert (tmp_path / "new" / "secret").stat().st_mode & 0o777 == 0o600
        host.ctrl_c()
        assert host.wait() == 0


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "--listen is missing"),
        (("--listen=unix:/tmp/x",), "is no address that other machines dial"),
        (("--listen=tcp:203.0.113.9:4500",), "cannot use address tcp:203.0.113.9:4500"),
        (("--listen=tcp:127.0.0.1:0", "--run-dir=/dev/null"), "a host cannot work in /dev/null"),
    ],
)
def test_what_is_missing_is_said_in_one_sentence(tmp_path, words, says):
    with Command(tmp_path, "host", *words, f"--secret={tmp_path}/secret") as host:
        assert host.wait() in (1, 2)
        assert says in host.text
        assert host.text.count("\n") <= 3
