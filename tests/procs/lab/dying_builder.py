"""Builds a lab and is killed at the N-th thing that it does to the network: FOLDER N.

N of 0 is once the agents run.
"""

import os
import signal
import sys
from pathlib import Path

from danaus.app import lab_works
from danaus.app.lab import Lab
from danaus.app.lab_plan import LabPlan

folder, left = Path(sys.argv[1]), int(sys.argv[2])
carry_out_lines = lab_works.carry_out_lines
start_agents = lab_works.LabWorks.start_agents


def die_at_last(*arguments, **options):
    global left
    left -= 1
    carry_out_lines(*arguments, **options)
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)


def die_afterwards(*arguments):
    start_agents(*arguments)
    os.kill(os.getpid(), signal.SIGKILL)


if left:
    lab_works.carry_out_lines = die_at_last
else:
    lab_works.LabWorks.start_agents = die_afterwards
Lab("half", labs=folder).up(LabPlan("half", num_hosts=2), ("sleep", "1000"))
