"""``danaus bench campaign``: hundreds of faults of all kinds on one run, to the undisturbed bits.

Owns the course of a campaign and its verdict.  The faults are ``campaign_mix``'s, the striking
``campaign_run``'s, the figures ``campaign_figures``'s.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from danaus.app.campaign_disk import lacking, small_disk
from danaus.app.campaign_mix import DISK, MIX, NEVER, campaign_plan
from danaus.app.campaign_report import judge, page_section, tell, write_section
from danaus.app.campaign_run import strike_to_the_end
from danaus.app.chaos import FaultPlan
from danaus.app.chaos_lab import LabNetwork
from danaus.app.chaos_log import plan_again
from danaus.app.lab import Lab, host_agent
from danaus.app.lab_plan import LabPlan
from danaus.app.run_folder import RunFolder, default_run_path, refuse_used
from danaus.app.settings import CampaignConfig, RestartConfig, RunConfig, fleet_of
from danaus.app.stopping import StopSignals
from danaus.app.undisturbed import NAME, OneReplica, Undisturbed
from danaus.model.config import LlamaConfig
from danaus.train.config import CheckpointConfig, DataConfig, ParallelConfig, StepConfig

_TAIL_STEPS = 60
_ROOM = 1.5
"""So many times the steps between faults: some wait until a host is back, with its imports."""
_PLAIN_LIMIT_S = 1800.0
HANG_LIMIT_S = 3.0
HEADING = "Campaigns"


def run_campaign(settings: CampaignConfig, *, console: Console) -> int:
    """Strike a run to its end and judge it; return the exit code: 0 if its bits are right."""
    parent = settings.run_dir or default_run_path("campaign", dt.datetime.now().astimezone())
    parent = parent.absolute()
    refuse_used(parent / "run")
    parent.mkdir(parents=True, exist_ok=True)
    missing = lacking(settings.hosts)
    plan = _plan(settings, missing)
    num_steps = _num_steps(settings, plan)

    def say(line: str) -> None:
        console.print(line, markup=False, highlight=False, soft_wrap=True)

    say(f"folder {parent}; {len(plan.faults)} faults in {num_steps} steps, seed {plan.seed}")
    with (
        StopSignals() as signals,
        small_disk(parent, "run", wanted=DISK not in missing) as path,
        lab_of(settings.hosts, parent) as lab,
    ):
        config = _config(settings, path, num_steps, lab=lab)
        folder = RunFolder.create(path, config)
        folder.release()
        undisturbed = _undisturbed(config, folder, parent)
        try:
            course = strike_to_the_end(
                folder, plan, fleet_of(config), network=_network(lab), say=say, signals=signals
            )
            say("waiting for the undisturbed training beside it")
            reference = undisturbed.wait(_PLAIN_LIMIT_S, signals)
        finally:
            undisturbed.close()
    course = dataclasses.replace(course, record=parent / "run" / "chaos" / "1.jsonl")
    judged = judge(RunFolder.open(parent / "run"), course, reference)
    when = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    command, left_out = _command(settings), _left_out(missing)
    facts = {"when": when, "command": command, "left_out": left_out}
    code = tell(judged, facts, out=settings.out or parent / "campaign.json", console=console)
    if settings.docs is not None:  # last: it may lie where nothing can be written
        section = page_section(judged, command, when=when, words=left_out)
        write_section(settings.docs, HEADING, section)
    return code


def _command(settings: CampaignConfig) -> str:
    how = f"--faults {settings.faults} --seed {settings.seed}"
    if settings.every_steps != CampaignConfig.every_steps:
        how += f" --every-steps {settings.every_steps}"
    if settings.replay is not None:
        how = f"--replay {settings.replay}"
    how += f" --replicas {settings.replicas}"
    how += f" --ranks {settings.ranks}" if settings.ranks > 1 else ""
    how += f" --hosts {settings.hosts}" if settings.hosts else ""
    return f"danaus bench campaign {how}"


def _left_out(missing: frozenset[str]) -> list[str]:
    """Return what no fault of this campaign did, and why."""
    found = [f"Left out: {what}: {why}." for what, why in NEVER.items()]
    for need in sorted(missing):
        specs = [", ".join(part.specs) for part in MIX if part.needs == need]
        found.append(f"Left out: {'; '.join(specs)}: this machine has not {need}.")
    return found


def _plan(settings: CampaignConfig, missing: frozenset[str]) -> FaultPlan:
    if settings.replay is None:
        return campaign_plan(
            settings.faults, settings.seed, every_steps=settings.every_steps, lacking=missing
        )
    told = plan_again(settings.replay)
    # A controller that is killed forgets whom it was to tell: each is told when its step has come.
    faults = tuple(
        dataclasses.replace(each, every_steps=1, times=1) if each.is_planned else each
        for each in told.faults
    )
    return FaultPlan(faults, told.seed)


def _num_steps(settings: CampaignConfig, plan: FaultPlan) -> int:
    if settings.replay is not None:
        return max((fault.at_step or 0 for fault in plan.faults), default=0) + _TAIL_STEPS
    return int(len(plan.faults) * settings.every_steps * _ROOM) + _TAIL_STEPS


@contextlib.contextmanager
def lab_of(num_hosts: int, parent: Path) -> Iterator[Lab | None]:
    """Give a lab of so many hosts until the context ends, none for 0; its files lie in ``parent``.

    Raises:
        ConfigError: This machine cannot have one; says what is not there.
    """
    if not num_hosts:
        yield None
        return
    lab = Lab("campaign", labs=parent / "labs", owned=True)
    try:
        lab.up(LabPlan("campaign", num_hosts=num_hosts), host_agent())
        yield lab
    finally:
        lab.down()


def _network(lab: Lab | None) -> LabNetwork | None:
    return None if lab is None else LabNetwork(lab, lab.plan.hosts)


def _undisturbed(config: RunConfig, folder: RunFolder, parent: Path) -> Undisturbed | OneReplica:
    if config.parallel.shard > 1:
        return OneReplica(config, parent / NAME)
    return Undisturbed(folder, parent / f"{NAME}.jsonl")


def _config(settings: CampaignConfig, path: Path, num_steps: int, *, lab: Lab | None) -> RunConfig:
    """Return the run's settings: a tiny network, and restarts without end."""
    hosts = () if lab is None else tuple(map(lab.plan.listening, lab.plan.hosts))
    text = path.parent / "text.txt"
    text.write_bytes(bytes(range(256)) * 256)
    return RunConfig(
        model=LlamaConfig(dim=32, num_layers=1, num_heads=4, num_kv_heads=2, ffn_dim=64),
        data=DataConfig(path=str(text)),
        step=StepConfig(
            num_microbatches=6,
            microbatch_size=settings.ranks,
            seq_len=32,
            num_steps=num_steps,
            seed=7,
        ),
        checkpoint=CheckpointConfig(every_steps=20, keep=3),
        parallel=ParallelConfig(shard=settings.ranks),
        replicas=settings.replicas,
        hosts=hosts,
        secret=None if lab is None else lab.secret_path,
        run_dir=path,
        hang_limit_s=HANG_LIMIT_S,
        restart=RestartConfig(intensity=1_000_000, period_s=5.0),
    )
