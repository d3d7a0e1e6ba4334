"""Builds a lab and is killed at the N-th thing that it does to the network: FOLDER N."""

import os
import signal
import sys
from pathlib import Path

from danaus.app import lab_works
from danaus.app.lab import Lab
from danaus.app.lab_plan import LabPlan

folder, left = Path(sys.argv[1]), int(sys.argv[2])
carry_out_lines = lab_works.carry_out_lines


def die_at_last(*arguments, **options):
    global left
    left -= 1
    carry_out_lines(*arguments, **options)
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)


lab_works.carry_out_lines = die_at_last
Lab("half", labs=folder).up(LabPlan("half", num_hosts=2), ("sleep", "1000"))
