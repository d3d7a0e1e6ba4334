"""Runs over hosts that are joined: one is killed and started again, one hangs and comes back.

Each host has a loopback address of its own; everything between them is TCP.
"""

from __future__ import annotations

import os
import signal

import pytest
from tests.procs.cli.terminal import TINY, Command, text, told
from tests.procs.waiting import machines

from danaus.app.events import Event
from danaus.app.run_folder import RunFolder
from danaus.testing.faults import Pace
from danaus.testing.hosts import Watched
from danaus.testing.runs import Shape, running, small_run
from danaus.testing.watching import RunWatch

SHAPE = Shape(replicas=3, leaves=3, steps=120)
STEP_S = 0.4


def spread(tmp_path, hosts, shape=SHAPE, **more):
    """Return a run over these hosts whose steps take their time until ``fast`` is there."""
    pace = Pace(STEP_S, until=tmp_path / "fast")
    return small_run(
        tmp_path / "run",
        shape,
        observers={f"replica-{n}": (pace,) for n in range(shape.replicas)},
        hosts=tuple(host.address for host in hosts),
        secret=hosts[0].secret,
        **more,
    )


def back(watch, host, times=1):
    """Wait until a host was joined so often after it was lost."""

    def joined():
        events = watch.events(Event.HOST_JOINED)
        return [e for e in events if e["away_s"] and e["host"].startswith(host)][times - 1 :]

    watch.until(f"{host} to be joined again", joined, 60)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_killed_and_a_hung_host_come_back_and_the_bits_are_those_of_an_undisturbed_run(
    tmp_path, undisturbed
):
    with machines(tmp_path, 3) as hosts:
        run = spread(tmp_path, hosts)
        with running(run) as going:
            watch = going.watch
            watch.until_members(3, limit_s=90)
            # One dies with all that it had, and is started again.
            hosts[1].end(signal.SIGKILL)
            watch.until_members(2)
            said = [event["reason"] for event in watch.events(Event.QUORUM_ANNOUNCED)]
            assert "its host agent has ended" in said[-1], "nobody waited for silence to grow long"
            hosts[1].start()
            back(watch, "host1")
            watch.until_members(3, limit_s=60)
            # One hangs as a whole, past the limit: its workers live, and must not come back.
            old = [Watched(pid) for pid in hosts[2].stop() if pid != hosts[2].command.pid]
            watch.until_members(2)
            watch.until("it to be waited for", lambda: watch.events(Event.HOST_WAITED_FOR))
            for pid in reversed(hosts[2].family):
                os.kill(pid, signal.SIGCONT)
            back(watch, "host2")
            assert all(each.ends_within(0.0) for each in old), "they were fenced"
            for each in old:
                each.close()
            watch.until_members(3, limit_s=60)
            (tmp_path / "fast").touch()
            result = going.result(90)
        assert result.sha256 == undisturbed(run)
        assert not watch.events(Event.RUN_RESUMED), "somebody was always alive"
        assert [len(host.family) for host in hosts] == [1, 1, 1], "they wait, and that is all"


@pytest.mark.timeout(120)
def test_ctrl_c_leaves_the_hosts_waiting_and_nothing_else(tmp_path):
    text(tmp_path)
    with machines(tmp_path, 2) as hosts:
        words = ["train", "debug", "--replicas=2", "--run-dir=r", "--steps=100000"]
        words += ["--hosts", ",".join(host.address for host in hosts)]
        words += [f"--secret={hosts[0].secret}", "--data=text.txt"]
        with Command(tmp_path, *words) as controller:
            controller.wait_until(lambda: told(tmp_path / "r", "quorum_announced") or None)
            started = [pid for host in hosts for pid in host.family[1:]]
            assert len(started) >= 6, "agents, nurseries, workers"
            watched = [Watched(pid) for pid in started]
            controller.ctrl_c()
            assert controller.wait() == 130
        assert all(each.ends_within(0.0) for each in watched)
        for each in watched:
            each.close()
        assert [len(host.family) for host in hosts] == [1, 1]
        for host in hosts:
            host.command.wait_for("is done here")


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_a_detached_run_goes_on_without_its_controller_and_leaves_the_hosts_waiting(tmp_path):
    text(tmp_path)
    with machines(tmp_path, 2) as hosts:
        words = ["train", "debug", *TINY, "--replicas=2", "--run-dir=r", "--steps=400"]
        words += [
            "--detached",
            "--no-watchdog",
            "--hosts",
            ",".join(host.address for host in hosts),
        ]
        with Command(tmp_path, *words, f"--secret={hosts[0].secret}") as controller:
            controller.wait_until(lambda: told(tmp_path / "r", "quorum_announced") or None)
            watch = RunWatch(RunFolder.open(tmp_path / "r"))
            watch.until_step(3)
            service = Watched(watch.service_pid())
            controller.signal(signal.SIGKILL)
            assert controller.wait() == 137
        watch.until_step(400, limit_s=90)
        for host in hosts:
            host.command.wait_for("its agent has ended while it was away", limit_s=60)
            host.command.wait_until(lambda host=host: host.family == [host.command.pid] or None)
        assert service.ends_within(30.0), "nobody needs it any more"
        service.close()


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_replicas_of_a_host_that_stays_away_start_on_another_if_that_is_asked_for(
    tmp_path, undisturbed
):
    with machines(tmp_path, 2) as hosts:
        shape = Shape(replicas=2, leaves=3, steps=60)
        run = spread(tmp_path, hosts, shape, host_wait_s=1.0)
        with running(run) as going:
            watch = going.watch
            watch.until_members(2, limit_s=90)
            hosts[1].end(signal.SIGKILL)
            watch.until(
                "a start on the other host",
                lambda: [
                    event
                    for event in watch.events(Event.PROCESS_STARTED, replica="replica-1")
                    if event["process_id"].startswith("host0/")
                ],
                60,
            )
            watch.until_members(2, limit_s=60)
            (tmp_path / "fast").touch()
            assert going.result(90).sha256 == undisturbed(run)


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_two_ranks_of_one_replica_meet_on_their_host(tmp_path, undisturbed):
    with machines(tmp_path, 2) as hosts:
        shape = Shape(replicas=2, ranks=2, leaves=4, steps=6)
        run = spread(tmp_path, hosts, shape)
        (tmp_path / "fast").touch()
        with running(run) as going:
            result = going.result(120)
        assert result.sha256 == undisturbed(run)


@pytest.mark.timeout(200)
def test_a_run_on_this_machine_alone_may_use_an_interface_instead_of_socket_files(
    tmp_path, undisturbed
):
    run = small_run(tmp_path / "run", Shape(replicas=2, leaves=3, steps=6), bind="lo")
    with running(run) as going:
        assert going.result(90).sha256 == undisturbed(run)
    listening = going.watch.events(Event.SERVICE_STARTED)[0]["address"]
    assert listening.startswith("tcp:127.0.0.1:")
