"""A real quorum service, killed and started again; members on threads; a host agent in-process."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from danaus.core.clock import Deadline
from danaus.core.errors import ChannelClosed, DeadlinePassed, NoQuorum, ServiceLost
from danaus.quorum.client import QuorumClient
from danaus.quorum.disk import QuorumDisk
from danaus.quorum.messages import Epoch, OpenStep, Released, StepReport
from danaus.wire.lifecycle import ProcessPosition
from danaus.wire.position import Phase

from .quorum_parts import LIMIT_S, SOURCE, FakeAgent, Members, MemberThread, ServiceProcess


@pytest.fixture
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    folder = tmp_path_factory.mktemp("q")
    with ServiceProcess(folder, "--expected-replicas", "2") as service:
        yield service


@pytest.fixture
def agent(service: ServiceProcess) -> Iterator[FakeAgent]:
    with FakeAgent(f"unix:{service.folder}/a", service.secret) as agent:
        yield agent


@pytest.fixture
def members(service: ServiceProcess, agent: FakeAgent) -> Iterator[Members]:
    with Members(service, agent) as members:
        yield members


def names(told: object) -> list[str]:
    return list(told.replica_ids)  # type: ignore[attr-defined]


def test_a_quorum_forms_and_a_reported_death_is_not_waited_for(
    service: ServiceProcess, agent: FakeAgent, members: Members
) -> None:
    service.start()
    a, b = members.add("a"), members.add("b")
    told = members.form(a, b)
    assert (told.epoch, names(told), told.start) == (Epoch(1, 1), ["a", "b"], "live")
    agent.die(b.process_id)
    abort = a.aborts.get(timeout=LIMIT_S)
    assert abort.epoch == told.epoch
    assert [str(member) for member in abort.dead] == ["b/0#0"]
    assert "SIGKILL" in abort.reason
    again = members.form(a)
    assert names(again) == ["a"]
    assert "b is dead (reported)" in again.reason
    (death,) = service.lines("quorum_death")
    assert death["replica"] == "b"


def test_killed_between_quorums_it_goes_on_from_its_disk(
    service: ServiceProcess, members: Members
) -> None:
    service.start()
    a, b = members.add("a"), members.add("b")
    first = members.form(a, b)
    service.end(signal.SIGKILL)
    a.commit(3)
    b.commit(3)
    a.ask()
    b.ask()
    service.start()
    told = a.answer()
    assert told == b.answer()
    assert told.epoch == Epoch(1, 2) > first.epoch
    assert told.committed_step == 3


def test_an_outcome_that_was_saved_stands_after_a_restart(
    service: ServiceProcess, members: Members
) -> None:
    service.start()
    a, b = members.add("a"), members.add("b")
    epoch = members.form(a, b).epoch
    for member in (a, b):
        member.become(open_step=OpenStep(1, epoch, "prepared", "digest"))
    kept = a.report
    second = members.form(a, b)
    assert (second.outcome.verdict, second.committed_step) == ("commit", 1)
    # As if the announcement had not reached ``a``: it asks again, knowing the first quorum only.
    a.report = kept
    service.end(signal.SIGKILL)
    service.start()
    a.ask()
    assert a.answer() == second
    assert service.lines("quorum_announced_again")


def test_a_death_while_the_service_is_away_is_known_when_it_is_back(
    service: ServiceProcess, agent: FakeAgent, members: Members
) -> None:
    service.start()
    a, b = members.add("a"), members.add("b")
    members.form(a, b)
    service.end(signal.SIGKILL)
    agent.die(b.process_id)
    b.client.close()
    a.ask()
    service.start()
    told = a.answer()
    assert names(told) == ["a"]
    assert "b is dead" in told.reason


def test_a_death_that_no_host_agent_sees_is_told_by_the_machine(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("q")
    never = ("--heartbeat-limit-s", "600", "--reconnect-limit-s", "600")
    with (
        ServiceProcess(folder, "--expected-replicas", "2", *never) as service,
        Members(service) as members,
        socket.socket(socket.AF_UNIX) as listening,
    ):
        service.start()
        listening.bind(f"{folder}/b")
        listening.listen()
        a, b = members.add("a"), members.add("b", data_address=f"unix:{folder}/b")
        members.form(a, b)
        listening.close()  # as all of a process's does when it dies
        b.client.close()
        told = members.form(a)
        assert (names(told), told.epoch) == (["a"], Epoch(1, 2))
        assert "no host agent can kill it" in told.reason


def test_a_joiner_learns_while_the_members_wait(
    service: ServiceProcess, agent: FakeAgent, members: Members
) -> None:
    service.start()
    a, b = members.add("a"), members.add("b")
    members.form(a, b)
    agent.die(b.process_id)
    a.aborts.get(timeout=LIMIT_S)
    members.form(a)
    a.commit(5)
    new = members.add("b", incarnation=1)
    new.ask()
    change = a.changes.get(timeout=LIMIT_S)
    while "b#1" not in change.reason:
        change = a.changes.get(timeout=LIMIT_S)
    a.ask()
    held = a.answer()
    assert held == new.answer()
    assert held.hold
    (learner,) = held.learners
    assert [seat.member.replica_id for seat in learner.donors] == ["a"]
    a.ask()
    new.become(committed_step=5, fingerprint="f5", committed_epoch=a.report.committed_epoch)
    new.ask()
    told = a.answer()
    assert told == new.answer()
    assert (names(told), told.hold, told.committed_step) == (["a", "b"], False, 5)


def test_a_hung_process_is_fenced_within_its_limit(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("q")
    with (
        ServiceProcess(folder, "--hang-limit-s", "1.0", "--expected-replicas", "3") as service,
        FakeAgent(f"unix:{folder}/a", service.secret) as agent,
        Members(service, agent) as members,
    ):
        service.start()
        a, b, c = (members.add(name) for name in "abc")
        told = members.form(a, b, c)
        for still_s in (0.5, 0.9, 1.1):
            agent.show(
                at(a, Phase.REDUCE, still_s), at(b, Phase.COMPUTE, still_s),
                at(c, Phase.REDUCE, still_s),
            )  # fmt: skip
        kill = agent.killed.get(timeout=LIMIT_S)
        assert kill.process_id == b.process_id
        assert kill.save_stacks
        assert "COMPUTE" in kill.reason
        assert a.aborts.get(timeout=LIMIT_S).epoch == told.epoch
        assert names(members.form(a, c)) == ["a", "c"]
        (line,) = service.lines("hang_noticed")
        assert line["replica"] == "b"
        assert line["process_id"] == b.process_id


def at(member: MemberThread, phase: Phase, still_s: float) -> ProcessPosition:
    return ProcessPosition(member.process_id, 7, int(phase), 0, phase.waits, still_s)


def test_one_that_cannot_be_killed_is_left_behind(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("q")
    options = ("--heartbeat-limit-s", "0.8", "--fence-limit-s", "0.3", "--expected-replicas", "2")
    with (
        ServiceProcess(folder, *options) as service,
        FakeAgent(f"unix:{folder}/a", service.secret) as agent,
        Members(service, agent) as members,
    ):
        service.start()
        a, b = members.add("a"), members.add("b")
        members.form(a, b)
        agent.stubborn.add(b.process_id)
        b.client.close()
        a.ask()
        told = a.answer()
        assert names(told) == ["a"]
        assert "b is out of reach" in told.reason
        assert agent.killed.get(timeout=LIMIT_S).process_id == b.process_id


def test_it_ends_with_its_controller_and_prints_nothing(
    service: ServiceProcess, members: Members
) -> None:
    service.start()
    members.form(members.add("a"), members.add("b"))
    assert service.end() == (0, "")


def test_it_ends_when_told_and_leaves_no_socket(service: ServiceProcess, members: Members) -> None:
    service.start()
    members.form(members.add("a"), members.add("b"))
    assert service.end(signal.SIGTERM) == (0, "")
    assert not os.path.exists(service.address.removeprefix("unix:"))


def test_it_ends_once_another_is_started_over_its_folder(
    service: ServiceProcess, members: Members
) -> None:
    """Elsewhere, say, by a controller that could not reach this one: never two (Q-3)."""
    older = service.start().process
    assert older is not None
    told = members.form(members.add("a"), members.add("b"))
    service.address += "2"
    service.start()
    assert older.wait(LIMIT_S) == 0
    output, _ = older.communicate(timeout=LIMIT_S)
    assert b"another quorum service keeps" in output
    assert service.process is not None
    assert service.process.poll() is None
    saved = QuorumDisk(service.folder / "quorum").load()
    assert saved is not None
    assert saved.announcement.epoch == told.epoch


def test_a_ledger_without_a_quorum_is_not_begun_anew(
    service: ServiceProcess, members: Members
) -> None:
    (service.folder / "ledger").mkdir()
    line = b'{"line":"committed","step":120,"epoch":[3,1]}\n'
    (service.folder / "ledger" / "a-0.jsonl").write_bytes(line)
    service.options = (*service.options, "--heartbeat-limit-s", "0.5")
    service.start()
    a, b = members.add("a"), members.add("b")
    a.ask()
    b.ask()
    error = a.answers.get(timeout=LIMIT_S)
    assert isinstance(error, NoQuorum)
    assert "120 committed steps" in error.reason
    assert "--resume" in error.to_do
    b.answers.get(timeout=LIMIT_S)
    service.end(signal.SIGTERM)
    service.start("--resume")
    for member in (a, b):
        member.become(restorable_step=100)
    told = members.form(a, b)
    assert (told.epoch, told.start, told.committed_step) == (Epoch(4, 1), "restore", 100)


def test_a_service_that_is_not_there_is_named(service: ServiceProcess, members: Members) -> None:
    a = members.add("a")
    with pytest.raises(ServiceLost) as caught:
        a.client.join(a.report, Deadline.after(0.3))
    assert service.address in str(caught.value)
    service.start()
    with pytest.raises(DeadlinePassed, match="1 of 2 expected"):
        wait_for_reason(a.client, a.report)


def wait_for_reason(client: QuorumClient, report: StepReport) -> None:
    """Join with growing deadlines until the service has said why there is no quorum."""
    deadline = Deadline.after(LIMIT_S)
    while not deadline.passed:
        try:
            client.join(report, Deadline.after(0.5))
        except ServiceLost:
            continue
        except DeadlinePassed as passed:
            if "expected" in str(passed):
                raise


def test_who_waits_long_says_so_and_why(
    service: ServiceProcess, members: Members, monkeypatch, caplog
) -> None:
    monkeypatch.setattr("danaus.quorum.client.PATIENCE_S", 0.0)
    client = members.add("a").client
    with pytest.raises(ServiceLost):
        client.join(StepReport(0, "seed"), Deadline.after(1.0))
    assert f"a/0#0 is cut off from the quorum service at {service.address} for " in caplog.text
    assert "; waiting" in caplog.text


def test_bad_options_are_one_sentence_and_exit_code_2(tmp_path: Path) -> None:
    command = [
        sys.executable, "-m", "danaus.quorum.service", "--folder", str(tmp_path / "q"),
        "--address", "tcp:nowhere", "--secret", str(tmp_path / "none"),
    ]  # fmt: skip
    ended = subprocess.run(
        command,
        check=False,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
    )
    assert ended.returncode == 2
    assert "secret file" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_who_waits_is_told_that_the_client_was_closed(
    service: ServiceProcess, members: Members
) -> None:
    service.start()
    a = members.add("a")
    a.ask()
    deadline = Deadline.after(LIMIT_S)
    while not service.lines("quorum_waiting"):
        assert not deadline.passed
        threading.Event().wait(0.02)
    a.client.close()
    error = a.answers.get(timeout=LIMIT_S)
    assert isinstance(error, ChannelClosed)


def test_a_drained_member_is_told_to_end(service: ServiceProcess, members: Members) -> None:
    service.start()
    a, b = members.add("a"), members.add("b")
    members.form(a, b)
    b.client.leave("drain of its host")
    assert "drain" in a.changes.get(timeout=LIMIT_S).reason
    a.ask()
    b.ask()
    assert names(a.answer()) == ["a"]
    released = b.answers.get(timeout=LIMIT_S)
    assert isinstance(released, Released)
    assert "drain" in released.reason
    assert not released.save


def test_who_leaves_while_the_service_is_away_is_let_go_by_the_next(
    service: ServiceProcess, members: Members
) -> None:
    service.start()
    a, b = members.add("a"), members.add("b")
    members.form(a, b)
    service.end(signal.SIGKILL)
    b.client.leave("drain of its host")
    a.ask()
    b.ask()
    service.start()
    assert names(a.answer()) == ["a"]
    assert isinstance(b.answers.get(timeout=LIMIT_S), Released)
