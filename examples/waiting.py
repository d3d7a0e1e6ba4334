"""Hosts that wait to be joined, here two processes of this machine; metrics and traces by name.

python examples/waiting.py
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import tempfile
from pathlib import Path

from danaus.actor import (
    Actor,
    HostMesh,
    as_endpoint,
    attach_to_workers,
    current_actor_name,
    current_rank,
    current_size,
    endpoint,
    get_meter,
    run_worker_loop_forever,
    shutdown_context,
    span,
    traced,
)


class Worker(Actor):
    """Says where it is; where opentelemetry is installed it is traced and counted."""

    def __init__(self) -> None:
        self.calls = get_meter().create_counter("calls")

    @endpoint
    def where(self) -> str:
        """Return its name and place."""
        self.calls.add(1)
        with span("where"):
            return f"{current_actor_name()} {current_rank().rank} of {named(current_size())}"

    def squared(self, k: int) -> int:
        """Return a square: no endpoint, and called as one."""
        return k * k


@traced
def named(sizes: dict[str, int]) -> str:
    """Return sizes in words."""
    return " x ".join(f"{size} {axis}" for axis, size in sizes.items())


def main() -> None:
    """Start two hosts, attach to them, and call what runs there."""
    with tempfile.TemporaryDirectory() as folder:
        secret = Path(folder) / "secret"  # each host has a copy, which only its user can read
        os.close(os.open(secret, os.O_CREAT | os.O_WRONLY, 0o600))
        secret.write_text(secrets.token_hex(32))
        addresses = [f"ipc://{folder}/host{n}" for n in range(2)]  # or tcp://10.0.0.7:4500
        command = [sys.executable, __file__, str(secret)]
        pipe = subprocess.PIPE
        hosts = [subprocess.Popen([*command, each], stdout=pipe) for each in addresses]
        try:
            for host in hosts:
                assert host.stdout is not None
                host.stdout.readline()  # it waits
            attached: HostMesh = attach_to_workers(addresses, secret)
            workers = attached.spawn_procs(per_host={"gpus": 2}).spawn("worker", Worker)
            for place in workers.where.call().get().values():
                print(place)
            one = workers.slice(hosts=1, gpus=0)
            print(f"a plain method: {as_endpoint(one.squared).call_one(7).get()}")
        finally:
            shutdown_context()
            for host in hosts:
                host.terminate()
                host.communicate()
    print("the hosts waited again, and have ended")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        secret, address = sys.argv[1:]
        run_worker_loop_forever(address, secret, say=lambda words: print(words, flush=True))
    else:
        main()
