"""Both ends of a state transfer, as processes of their own: how fast a learner gets its state.

Usage: ``python -m danaus.app.bench_ft_transfer serve FOLDER ME NUM_MIB`` serves until its input
ends, at an address that it leaves in FOLDER; ``learn FOLDER NUM_DONORS NUM_MIB NUM_TIMES`` says
how many bytes a second came, each time.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch
from torch import Tensor

from danaus.app.bench_processes import await_words, end_with_input, leave_word, say
from danaus.core.clock import Deadline
from danaus.core.errors import InternalError
from danaus.ft.manifest import Wanted
from danaus.ft.state_server import StateServer
from danaus.ft.transfer import Fetch
from danaus.quorum.folder import RunFiles
from danaus.wire.address import Address
from danaus.wire.blocking import PeerListener
from danaus.wire.secret import Secret

_STEP = 1
_LIMIT_S = 120.0
_TENSOR_MIB = 64


def _state(num_mib: int, fill: float) -> dict[str, Tensor]:
    sizes = [min(_TENSOR_MIB, num_mib - at) for at in range(0, num_mib, _TENSOR_MIB)]
    return {f"layer.{at}": torch.full((size << 18,), fill) for at, size in enumerate(sizes)}


def _serve(folder: Path, me: int, num_mib: int) -> None:
    secret = Secret.load(RunFiles(folder).secret)
    listener = PeerListener(Address.tcp("127.0.0.1", 0), secret)
    server = StateServer(listener, room_bytes=num_mib << 20)
    if not server.publish(_STEP, _state(num_mib, 1.0)).copied:
        raise InternalError("H-2", "no room for the state")
    leave_word(folder / f"donor-{me}.address", str(listener.address))
    sys.stdin.read()


def _learn(folder: Path, *, num_donors: int, num_mib: int, num_times: int) -> list[float]:
    secret = Secret.load(RunFiles(folder).secret)
    donors = _donors(folder, num_donors)
    into = _state(num_mib, 0.0)
    rates: list[float] = []
    for _ in range(num_times):
        for tensor in into.values():
            tensor.zero_()
        began = time.perf_counter()
        report = Fetch(donors, secret, Wanted(_STEP), into=into).run(Deadline.after(_LIMIT_S))
        rates.append(report.num_bytes / (time.perf_counter() - began))
        if not all(bool((tensor == 1.0).all()) for tensor in into.values()):
            raise InternalError("H-2", "the state that came is not the one that was served")
    return rates


def _donors(folder: Path, num_donors: int) -> dict[str, Address]:
    paths = [folder / f"donor-{each}.address" for each in range(num_donors)]
    words = await_words(paths, "the donors")
    return {f"donor-{at}": Address.parse(word) for at, word in enumerate(words)}


def main() -> None:
    """Be a donor or a learner, as the command line says."""
    role, folder, *numbers = sys.argv[1:]
    torch.set_num_threads(1)
    if role == "serve":
        _serve(Path(folder), int(numbers[0]), int(numbers[1]))
    else:
        end_with_input()
        num_donors, num_mib, num_times = map(int, numbers)
        rates = _learn(Path(folder), num_donors=num_donors, num_mib=num_mib, num_times=num_times)
        say(bytes_per_s=rates)


if __name__ == "__main__":
    main()
