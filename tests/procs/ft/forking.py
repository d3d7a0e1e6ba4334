"""Forks replicas for tests from a process that has imported torch: once for all.

Usage: forking.py PART FOLDER GATE [ADDRESS ...]   For each line ``NAME WORD`` of its input it
forks a process that calls ``train_one`` of the module PART, which lies beside this one, with
folder, gate, name, word and the addresses.  With its input it ends, and all that it has forked.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys

import torch
from torch import nn


def main() -> None:
    part, folder, gate, *addresses = sys.argv[1:]
    train_one = importlib.import_module(part).train_one
    torch.set_num_threads(1)
    torch.optim.AdamW([nn.Parameter(torch.zeros(1))])  # the first one imports a great deal
    pids = []
    for line in sys.stdin:
        name, word = line.split()
        pid = os.fork()
        if pid == 0:
            train_one(folder, int(gate), name, word, *addresses)
            os._exit(0)
        pids.append(pid)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
