"""A donor as a process of its own; a test kills it while it serves.

Usage: donor_process.py SECRET_FILE ADDRESS STEP NUM_MIB   Serves until its input ends.
"""

import sys

import torch

from danaus.core.errors import InternalError
from danaus.ft.state_server import StateServer
from danaus.wire.address import Address
from danaus.wire.blocking import PeerListener
from danaus.wire.secret import Secret


def state(num_mib):
    draw = torch.Generator().manual_seed(1)
    return {
        "weight": torch.randn(num_mib << 18, generator=draw),
        "bias": torch.randn(5, generator=draw),
        "step": torch.tensor(3.0),
    }


def main():
    secret_path, address, step, num_mib = sys.argv[1:]
    torch.set_num_threads(1)
    listener = PeerListener(Address.parse(address), Secret.load(secret_path))
    server = StateServer(listener)
    if not server.publish(int(step), state(int(num_mib)), note="1.4").copied:
        raise InternalError("H-2", "no room for the test's state")
    print("serving", flush=True)
    sys.stdin.read()
    server.close()
    listener.close()


if __name__ == "__main__":
    main()
