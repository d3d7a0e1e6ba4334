"""Hosts within programs: until their job lets go of them, and beside other work (P-4)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from danaus.actor import Actor, attach_to_workers, endpoint, shutdown_context
from danaus.core.errors import AddressRefused, ConfigError
from danaus.wire.secret import Secret

LIMIT_S = 30.0
ROOT = Path(__file__).parents[3]

UNTIL_SHUTDOWN = """
import sys
from danaus.actor import run_worker_loop_until_shutdown
run_worker_loop_until_shutdown(sys.argv[1], sys.argv[2], name="here")
print("let go of")
"""

BESIDE = """
import sys
from danaus.actor import Actor, attach_to_workers, endpoint, start_worker_loop_forever

class Speaker(Actor):
    @endpoint
    def speak(self):
        return "from a worker"

ended = start_worker_loop_forever(sys.argv[1], sys.argv[2], name="here")
hosts = attach_to_workers([sys.argv[1]], sys.argv[2])
print(hosts.spawn_procs().spawn("speaker", Speaker).speak.call().get().item(), ended.done())
if sys.argv[3] == "cancel":
    hosts.shutdown().get()
    print(ended.cancel(), ended.done())
"""


class Speaker(Actor):
    @endpoint
    def pid(self) -> int:
        return os.getpid()


@pytest.fixture
def secret(tmp_path):
    path = tmp_path / "secret"
    Secret.ensure(path)
    yield path
    shutdown_context()


def program(text: str, *args: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-uc", text, *map(str, args)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("how", ["shut down", "left"])
def test_a_host_ends_once_its_job_lets_go_of_it(tmp_path, secret, how):
    address = f"unix:{tmp_path}/h"
    with program(UNTIL_SHUTDOWN, address, secret) as host:
        try:
            assert "here waits to be joined" in host.stdout.readline()
            hosts = attach_to_workers([address], secret)
            assert hosts.spawn_procs().spawn("speaker", Speaker).pid.call().get(LIMIT_S).values()
            if how == "shut down":
                hosts.shutdown("nothing is left to do").get(LIMIT_S)
            else:
                shutdown_context()
            *_, told, last = host.stdout.readlines()
            assert ("nothing is left to do" in told) == (how == "shut down")
            assert (last, host.wait(LIMIT_S)) == ("let go of\n", 0)
        finally:
            host.kill()


@pytest.mark.parametrize("end", ["cancel", "leave"])
def test_a_host_works_beside_its_program_and_ends_with_it(tmp_path, secret, end):
    with program(BESIDE, f"unix:{tmp_path}/h", secret, end) as host:
        try:
            told, _ = host.communicate(timeout=LIMIT_S)
        finally:
            host.kill()
    assert host.returncode == 0
    assert "from a worker False" in told
    assert ("True True" in told) == (end == "cancel")
    assert not (tmp_path / "h").exists()


def test_a_host_that_cannot_listen_says_so_at_once(tmp_path, secret):
    from danaus.actor import start_worker_loop_forever

    with pytest.raises(AddressRefused):
        start_worker_loop_forever("tcp:192.0.2.1:4500", secret)
    with pytest.raises(ConfigError):
        start_worker_loop_forever(f"unix:{tmp_path}/h", tmp_path / "none")
