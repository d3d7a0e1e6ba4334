"""One member of a group as a process of its own; a test kills or stops it.

Usage: member_process.py SECRET_FILE EPOCH ME NAME=ADDRESS...   It writes one line per event and
reads one command per line: ``vote``, ``reduce`` (both without end), or end of file to leave.
"""

import sys

import torch

from danaus.collectives.forming import Rendezvous
from danaus.collectives.meeting import MeetingPoint
from danaus.collectives.socket_group import SocketGroup
from danaus.core.clock import Deadline
from danaus.testing.groups import plan_one_leaf_each
from danaus.wire.address import Address
from danaus.wire.blocking import PeerListener
from danaus.wire.secret import Secret

NUM_ELEMENTS = 1_000_000


def say(word):
    print(word, flush=True)


def main():
    torch.set_num_threads(1)
    secret_path, epoch, me, *rest = sys.argv[1:]
    secret = Secret.load(secret_path)
    members = {n: Address.parse(a) for n, _, a in (each.partition("=") for each in rest)}
    listener = PeerListener(members[me], secret)
    meeting = MeetingPoint(listener)
    group = SocketGroup(meeting, secret, Rendezvous(epoch, me, members))
    say("listening")
    group.form(Deadline.after(20))
    say("formed")
    value, out = torch.ones(NUM_ELEMENTS), torch.empty(NUM_ELEMENTS)
    plan, rounds = plan_one_leaf_each(len(members)), 0
    for command in sys.stdin:
        while command.strip():
            if command.strip() == "vote":
                group.exchange_small(b"vote", deadline=Deadline.after(30))
            else:
                group.reduce_tree(
                    [value], out, plan=plan, subset=group.names, deadline=Deadline.after(30)
                )
            rounds += 1
            if rounds == 3:
                say("third round")
    group.close()
    meeting.close()
    listener.close()


if __name__ == "__main__":
    main()
