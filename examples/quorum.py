"""Three members, one dies, the quorum goes on without it and takes its successor in.

    python examples/quorum.py

The quorum service and the members are processes of their own; none of them needs torch.  There is
no host agent here that could report a death at once, so the service gives a member whose connection
closed a second to come back.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from danaus.quorum.client import QuorumClient
from danaus.quorum.messages import MemberId, Released, Seat, StepReport
from danaus.wire.secret import Secret


def be_member(folder: str, name: str, incarnation: int) -> None:
    """Ask for a quorum, say which one it is, and ask again whenever it is about to change."""
    changed = threading.Event()
    seat = Seat(MemberId(name, 0, incarnation), num_ranks=1, data_address=f"unix:{folder}/{name}")
    report = StepReport(committed_step=0, fingerprint="the same weights everywhere")
    with QuorumClient(
        f"unix:{folder}/quorum.sock",
        Secret.load(f"{folder}/secret"),
        seat,
        on_change_pending=lambda _change: changed.set(),
        on_abort=lambda _abort: changed.set(),
    ) as client:
        while True:
            told = client.join(report)
            if isinstance(told, Released):
                return  # it was asked to leave, and nobody counts on it any more
            changed.clear()
            print(f"{seat.member} is in quorum {told.epoch}:", *told.replica_ids, flush=True)
            report = StepReport(0, report.fingerprint, last_quorum=told.record())
            changed.wait(timeout=60.0)


@contextmanager
def running(*command: str) -> Iterator[subprocess.Popen[str]]:
    """Run a Python process for as long as the block lasts."""
    process = subprocess.Popen(
        [sys.executable, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def wait_for(process: subprocess.Popen[str], members: str) -> str:
    """Return the first line in which a member tells of a quorum of these."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.rstrip().endswith(f": {members}"):
            return line.rstrip()
    raise SystemExit("a member ended unexpectedly")


def main() -> None:
    """Start a service and three members, kill one, start its successor."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as everything:
        Secret.create(f"{folder}/secret")
        service = ["-m", "danaus.quorum.service", "--folder", f"{folder}/quorum"]
        service += ["--address", f"unix:{folder}/quorum.sock", "--secret", f"{folder}/secret"]
        everything.enter_context(running(*service, "--expected-replicas", "3"))

        def start(name: str, incarnation: int = 0) -> subprocess.Popen[str]:
            return everything.enter_context(running(__file__, folder, name, str(incarnation)))

        a, b, c = start("a"), start("b"), start("c")
        print(wait_for(a, "a b c"))
        wait_for(c, "a b c")
        print(f"killing b (kill -9 {b.pid})")
        os.kill(b.pid, 9)
        print(wait_for(a, "a c"))
        print(wait_for(c, "a c"))
        print("starting b again")
        successor = start("b", incarnation=1)
        print(wait_for(successor, "a b c"))


if __name__ == "__main__":
    if sys.argv[1:]:
        be_member(sys.argv[1], sys.argv[2], int(sys.argv[3]))
    else:
        main()
