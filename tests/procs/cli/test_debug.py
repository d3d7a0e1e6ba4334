"""``danaus debug``: attached to actors at breakpoints from another terminal."""

from __future__ import annotations

import bdb
import os
import signal
import subprocess
import sys

import pytest
from tests.procs.cli.terminal import LIMIT_S, SOURCE, Command

from danaus.actor import Actor, ActorError, SupervisionError, endpoint, shutdown_context
from danaus.job import LocalJob
from danaus.testing.hosts import Hosts, wait_for_state

PROMPT = r"\(Pdb\) "


class Stander(Actor):
    @endpoint
    def pid(self) -> int:
        return os.getpid()

    @endpoint
    def stand(self, k: int) -> int:
        doubled = 2 * k
        breakpoint()
        return doubled

    @endpoint
    def stand_often(self, times: int) -> int:
        for _ in range(times):
            breakpoint()
        return times


@pytest.fixture
def one(tmp_path, request):
    """A host with two workers, and what a person calls with a folder of theirs."""
    with Hosts(1, tmp_path / "run", module=request.module) as hosts:
        yield hosts


def spawn(hosts, number=1):
    return hosts.host(0).spawn_procs({"r": number}, name="w").spawn("stander", Stander)


def debug(hosts, *words: str, on_terminal: bool = True) -> Command:
    words = ("--wait-s", "20", *words)
    return Command(hosts.run_dir, "debug", str(hosts.run_dir), *words, on_terminal=on_terminal)


def test_two_are_listed_and_debugged_one_after_the_other_and_go_on(one):
    calls = spawn(one, 2).stand.call(21)
    with debug(one) as person:
        if person.wait_for(rf"{PROMPT}|attach to which").group().startswith("(Pdb"):
            person.type("c\r")  # the other came a little later
        else:
            assert "stander[r=0] in host0/w/0#0" in person.text
            person.type("2\r")
            person.wait_for(PROMPT)
            person.type("doubled\x01p \r")  # Ctrl-A: the line is edited
            person.wait_for(r"^42\r")
            person.type("doubled = 7\r")
            person.type("c\r")
        person.wait_for(r"stander\[r=.\] goes on")
        person.wait_for(PROMPT, start=person.text.rindex("goes on"))
        person.type("c\r")
        person.wait_for(r"goes on", start=person.text.rindex("goes on") + 1)
        person.ctrl_c()
        assert person.wait() == 130
    assert sorted(calls.get(LIMIT_S).values()) in ([7, 42], [42, 42])


def test_a_killed_debugger_leaves_the_actor_standing_for_the_next(one):
    call = spawn(one).stand.call_one(21)
    with debug(one) as first:
        first.wait_for(PROMPT)
        first.type("p 'seen by the ' + 'first'\r")
        first.wait_for("'seen by the first'")
        first.signal(signal.SIGKILL)
        first.wait()
    with debug(one) as second:
        second.wait_for("'seen by the first'\r\n\\(Pdb\\) ")
        second.type("c\r")
        second.wait_for("goes on")
    assert call.get(LIMIT_S) == 42


def test_of_two_who_attach_the_second_is_refused_unless_it_takes_over(one):
    call = spawn(one).stand.call_one(21)
    with debug(one) as first:
        first.wait_for(PROMPT)
        with debug(one) as second:
            second.wait_for("somebody else is attached to it")
            assert second.wait() == 2
        with debug(one, "--take") as third:
            third.wait_for(PROMPT)
            first.wait_for("somebody else has attached to it")
            assert first.wait() == 1
            third.type("c\r")
            third.wait_for("goes on")
    assert call.get(LIMIT_S) == 42


def test_who_leaves_leaves_the_actor_standing(one):
    call = spawn(one).stand.call_one(21)
    with debug(one) as person:
        person.wait_for(PROMPT)
        person.type("\x04")  # Ctrl-D
        person.wait_for("left stander")
        assert person.wait() == 0
    with debug(one) as person:
        person.wait_for(PROMPT)
        person.ctrl_c()
        person.wait_for("left standing")
        assert person.wait() == 130
    with debug(one) as person:
        person.wait_for(PROMPT)
        person.type("c\r")
        person.wait_for("goes on")
    assert call.get(LIMIT_S) == 42


def test_a_process_that_dies_at_its_breakpoint_is_told_of_at_once(one):
    stander = spawn(one)
    pid = stander.pid.call_one().get(LIMIT_S)
    call = stander.stand.call_one(21)
    with debug(one) as person:
        person.wait_for(PROMPT)
        os.kill(pid, signal.SIGKILL)
        person.wait_for("its process was ended by SIGKILL")
        assert person.wait() == 1
    with pytest.raises(SupervisionError, match="SIGKILL"):
        call.get(LIMIT_S)
    one.failure()
    with Command(one.run_dir, "debug", str(one.run_dir), on_terminal=True) as person:
        person.wait_for("nobody stands at a breakpoint")
        assert person.wait() == 1


def test_quitting_ends_the_endpoint_and_not_its_actor(one):
    stander = spawn(one)
    call = stander.stand.call_one(21)
    with debug(one) as person:
        person.wait_for(PROMPT)
        person.type("q\r")
        person.wait_for("goes on")
    with pytest.raises(ActorError) as raised:
        call.get(LIMIT_S)
    assert isinstance(raised.value.__cause__, bdb.BdbQuit)
    again = stander.stand_often.call_one(2)
    with debug(one) as person:
        person.wait_for(PROMPT)
        person.type("c\r")  # to the next breakpoint
        person.wait_for("goes on")
        person.wait_for(PROMPT, start=person.text.rindex("goes on"))
        person.type("n\r")
        person.wait_for(PROMPT, start=len(person.text))
        person.type("r\r")  # to the end of what is the user's
        person.wait_for("--Return--")
        person.type("n\r")
        person.wait_for("goes on", start=person.text.rindex("--Return--"))
    assert again.get(LIMIT_S) == 2


def piped(words: list[str], lines: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "danaus.cli.main", "debug", *words],
        input=lines,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        check=False,
    )


def test_programs_are_found_by_pid_and_without_being_named_and_lines_may_be_piped(one):
    stander = spawn(one, 2)
    pids = stander.pid.call().get(LIMIT_S)
    calls = stander.stand.call(21)
    assert piped([str(os.getpid()), "--wait-s=20"], "").returncode == 0
    while True:  # until both stand there
        listed = piped([], "").stdout
        if all(f"stander[r={n}]" in listed for n in range(2)):
            break
    assert f"of pid {os.getpid()}" in listed
    for n in range(2):
        words = [str(pids.item(r=n)), f"--at=host0.{n + 1}"]
        assert "\n(Pdb) 42\n" in piped(words, "p doubled\nc\n").stdout
    assert sorted(calls.get(LIMIT_S).values()) == [42, 42]
    wrong = piped(["1"], "")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "no program with actors has pid 1" in wrong.stderr
    assert piped([str(one.run_dir), "--at=host0.9"], "").returncode == 1


def test_one_that_is_asked_to_end_ends_at_its_breakpoint(one):
    """P-5: who stands there holds nobody up for longer than its grace."""
    procs = one.host(0).spawn_procs({"r": 1}, name="w")
    stander = procs.spawn("stander", Stander)
    pid = stander.pid.call_one().get(LIMIT_S)
    call = stander.stand.call_one(21)
    with debug(one) as person:
        person.wait_for(PROMPT)
        procs.stop(grace_s=0.2).get(LIMIT_S)
        person.wait_for("ended by SIG|exit code")
        assert person.wait() == 1
    assert not wait_for_state(pid, "RSDT", limit_s=0.1)
    with pytest.raises(SupervisionError):
        call.get(LIMIT_S)


CONTROLLER = """
import sys
sys.path.insert(0, sys.argv[1])
from danaus.actor import Actor, endpoint
from danaus.job import LocalJob

class Stander(Actor):
    def __init__(self):
        self.seen = 0

    @endpoint
    def stand(self, k: int) -> None:
        doubled = 2 * k
        breakpoint()
        self.seen = doubled

    @endpoint
    def told(self) -> int:
        return self.seen

job = LocalJob(1, run_dir=sys.argv[2], detached=True).apply()
stander = job.state().hosts.spawn_procs(name="w").spawn("stander", Stander)
stander.stand.broadcast(21)
stander.initialized.get(20)
print("made", flush=True)
sys.stdin.read()
"""


class Left(Actor):
    """As the adopting side knows it."""

    @endpoint
    def told(self) -> int:
        raise NotImplementedError


def test_whose_controller_is_gone_is_debugged_too_and_goes_on_for_the_next(tmp_path):
    command, pipe = [sys.executable, "-c", CONTROLLER, str(SOURCE), str(tmp_path)], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as controller:
        assert controller.stdout.readline() == "made\n"
        controller.kill()
    with Command(tmp_path, "debug", str(tmp_path), "--wait-s=20", on_terminal=True) as person:
        person.wait_for(PROMPT)
        person.type("doubled = 7\r")
        person.type("c\r")
        person.wait_for("goes on")
    with LocalJob(1, run_dir=tmp_path, detached=True) as job:
        left = job.state().left["w"]
        left.adopt()
        assert left.adopt_actors("stander", Left).told.call_one().get(LIMIT_S) == 7
    shutdown_context()
