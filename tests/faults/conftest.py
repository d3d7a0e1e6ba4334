"""Hosts for tests that hurt them; whole runs, and what each must come to."""

from __future__ import annotations

import functools
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from tests.faults.paced_runs import at_full_strength, paced_run

from danaus.actor.here import shutdown_context
from danaus.cli.main import main as danaus
from danaus.testing.hosts import Hosts
from danaus.testing.runs import Shape, finish, plain_sha256, small_run

_DISK_BYTES = 16 << 20
_SOURCE = Path(__file__).parents[2] / "src"
_CONTROLLER = """
import pickle, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from danaus.testing.runs import running

if __name__ == "__main__":
    exec(sys.argv[3])
    with running(pickle.loads(Path(sys.argv[2]).read_bytes())) as going:
        print(going.result(200).sha256, flush=True)
"""


@pytest.fixture
def make_hosts(tmp_path, request):
    """Return a function that makes hosts for a ``with`` block."""

    def make(num_hosts: int, **options) -> Hosts:
        return Hosts(num_hosts, tmp_path, module=request.module, **options)

    return make


@pytest.fixture
def one(make_hosts):
    """One host."""
    with make_hosts(1) as hosts:
        yield hosts


@pytest.fixture
def two(make_hosts):
    """Two hosts."""
    with make_hosts(2) as hosts:
        yield hosts


@pytest.fixture
def small_disk(tmp_path):
    """A file system of its own, small enough to be filled."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to mount a small file system")
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={_DISK_BYTES}", "danaus-test", str(disk)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"cannot mount a tmpfs here: {done.stderr.strip()}")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


@pytest.fixture
def paced(tmp_path):
    """Return a function that makes a run which takes its time: ``paced_run`` in this folder."""
    return functools.partial(paced_run, tmp_path)


@pytest.fixture
def same_bits(tmp_path, undisturbed):
    """Return a ``with`` block for a run that is to come to what it would come to undisturbed."""
    return lambda run: at_full_strength(run, tmp_path, undisturbed(run))


@pytest.fixture
def controlled(tmp_path):
    """Start a run under a controller of its own process, which executes some code before.

    What a detached run has left by the end of a test that failed is ended.
    """
    started, detached = [], set()

    def start(run, first: str = "", source: Path = _SOURCE, env=None) -> subprocess.Popen[str]:
        if run.config.detached:
            detached.add(run.folder.path)
        pickled = tmp_path / "run.pickle"
        pickled.write_bytes(pickle.dumps(run))
        command = [sys.executable, "-c", _CONTROLLER, str(source), str(pickled), first]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate(timeout=10)
    for path in detached:
        danaus(["stop", str(path)])


@pytest.fixture(autouse=True)
def _controller_ends_with_its_test(no_leaks):
    yield
    shutdown_context()


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory):
    """Return the hash that a shape's training comes to where nothing happens to it.

    With one rank that is a plain loop in this process, without any of danaus's processes; ranks
    of one replica need each other, so with two it is a run of one replica.
    """
    known = {}

    def sha256(run):
        config, ranks = run.config, run.config.parallel.shard
        key = (ranks, config.step.num_leaves, config.step.num_steps)
        if key not in known and ranks == 1:
            known[key] = plain_sha256(config)
        elif key not in known:
            shape = Shape(replicas=1, ranks=ranks, steps=key[2], leaves=key[1])
            alone = small_run(tmp_path_factory.mktemp("alone") / "run", shape)
            known[key] = finish(alone, limit_s=120).sha256
        return known[key]

    return sha256
