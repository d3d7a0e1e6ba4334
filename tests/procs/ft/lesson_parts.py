"""A state that grows by gradients, and donors of it, for tests of how learners come to it."""

from __future__ import annotations

import torch

from danaus.collectives.fingerprint import digest, fingerprint
from danaus.ft.step_log import LoggedStep
from danaus.quorum.messages import Epoch, MemberId, Seat

LINEAGE, NUM_ELEMENTS = 2, 1000
E1 = Epoch(1, 4)
SEAT = Seat(MemberId("c", 0, 1), 1, "unix:/c")
DONOR = Seat(MemberId("a", 0, 0), 1, "unix:/a")


def gradient_of(step):
    return torch.linspace(-1.0, 1.0, NUM_ELEMENTS) / step


class Work:
    """A state that is the sum of all that was applied to it, and mixes each in."""

    num_gradient_elements = NUM_ELEMENTS
    replays = True

    def __init__(self, step=0):
        self.named = {"w": torch.zeros(NUM_ELEMENTS), "step": torch.zeros(1, dtype=torch.int64)}
        for each in range(1, step + 1):
            self.apply(each, gradient_of(each), (1.0,))

    @property
    def step(self):
        return int(self.named["step"])

    def apply(self, step, flat, measures):
        assert step == self.step + 1
        self.named["w"].mul_(0.9).add_(flat.mul_(measures[0]))  # it changes the gradient too
        self.named["step"].fill_(step)

    def state(self):
        return self.named

    def loaded(self, step):
        assert step == self.step

    def fingerprint(self):
        return fingerprint(self.named)


class Donors:
    """Donors that stand at a step, and lend what they did since ``since``."""

    def __init__(self, sites, since):
        self.sites, self.work = sites, Work(since)
        for site in sites:
            site.server.publish(since, self.work.state(), note="1.3")
            site.server.log.begin(LINEAGE, since)

    def go_on(self, num_steps=1, numbers=()):
        for _ in range(num_steps):
            step = self.work.step + 1
            live = LoggedStep(
                step, E1, gradient_of(step), (1.0,), digest(gradient_of(step)), numbers
            )
            copies = [site.server.log.copy(live) for site in self.sites]
            self.work.apply(step, live.gradient, live.measures)
            for site, copy in zip(self.sites, copies, strict=True):
                site.server.add(copy)

    def wait(self, fingerprint_told=None):
        """Stand at a boundary, for a learner that is waited for."""
        for site in self.sites:
            told = self.work.fingerprint() if fingerprint_told is None else fingerprint_told
            step, state = self.work.step, self.work.state()
            site.server.publish(step, state, note="1.4", fingerprint=told, copied=False)
