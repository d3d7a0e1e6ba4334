"""``danaus train``: settings from preset, file and flags; a new run or one that goes on."""

from __future__ import annotations

import dataclasses
import datetime as dt
import difflib
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, TypeVar

import tyro

from danaus.app.chaos import FaultPlan
from danaus.app.chaos import check as check_plan
from danaus.app.progress import run_console
from danaus.app.resuming import resumed
from danaus.app.run_folder import RunFolder, default_run_path, refuse_used
from danaus.app.run_record import finished_words, read_end
from danaus.app.settings import RunConfig, fleet_of, saved
from danaus.cli.arguments import Given, read, show_help, wants_help
from danaus.core.config import load
from danaus.core.errors import ConfigError, DependencyMissing
from danaus.platform.choice import check as platform_check
from danaus.train.presets import PRESETS, preset
from danaus.wire.secret import Secret

C = TypeVar("C", bound=RunConfig)
_OWN = ("config", "resume", "take_over", "chaos.faults", "chaos.seed")
_NEEDED = {"numpy": "reading the text", "safetensors": "writing checkpoints"}


@dataclass(frozen=True, kw_only=True)
class ChaosFlags:
    """Faults on purpose; ``danaus chaos --list`` shows what there is.

    Args:
        faults: One each time, as in ``--chaos kill:every=20s --chaos hang:at_step=40``.
        seed: Chooses whom they hit where they do not say.
    """

    faults: tuple[str, ...] = ()
    seed: int = 0

    def plan(self) -> FaultPlan | None:
        """Return the plan, None if there are no faults."""
        return FaultPlan.parse(*self.faults, seed=self.seed) if self.faults else None


@dataclass(frozen=True, kw_only=True)
class TrainCommand(RunConfig):
    """Train through failures.

    Args:
        preset: Named settings to start from; without one, the presets are listed.
        config: A TOML file with a table per section; it goes above the preset.
        resume: Folder of a run that goes on from where it stopped.  Of a detached one whose
            controller is gone, what lives goes on as it is.
        take_over: With --resume: end a controller of the run that is alive, stopped say, and take
            its place.
        chaos: Faults on purpose.
    """

    preset: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="PRESET")] = ""
    config: Path | None = None
    resume: Path | None = None
    take_over: bool = False
    chaos: ChaosFlags = field(default_factory=ChaosFlags)


def run(arguments: list[str]) -> int:
    """Train; return the exit code."""
    if wants_help(arguments):
        base = preset(arguments[0]) if arguments[0] in PRESETS else None
        return show_help(TrainCommand, "train", default=load(TrainCommand, base=base))
    given = read(arguments, TrainCommand, "train")
    if "resume" in given.settings:
        return _go_on(given)
    if "take_over" in given.settings:
        raise ConfigError("--take-over without --resume", "the folder of a run that goes on")
    if not given.values and "config" not in given.settings:
        return _list_presets(given)
    settings = settle(given)
    chaos = _chaos(given, settings)
    path = place(settings, given)
    refuse_used(path)
    text = check(settings)
    return _train(begin(path, settings), text, resume=False, chaos=chaos)


def _chaos(given: Given, settings: RunConfig) -> FaultPlan | None:
    """Return the faults that are asked for.

    Raises:
        ConfigError: One cannot be read, or hits what this run does not have.
    """
    flags = {name: given.settings[name] for name in given.settings if name.startswith("chaos.")}
    asked = load(TrainCommand, overrides=flags).chaos.plan()
    if asked is not None:
        check_plan(asked, fleet_of(settings))
        # Loads what builds labs.
        from danaus.app.chaos_lab import network_for

        network_for(asked, settings.hosts)
    return asked


def settle(given: Given) -> RunConfig:
    """Return the settings of a new run.

    Raises:
        ConfigError: They cannot be.
    """
    if len(given.values) > 1:
        raise ConfigError(
            f"{given.values[1]!r} is one argument too many", "danaus train takes one PRESET"
        )
    base = _preset(given.values[0]) if given.values else None
    toml = given.settings.get("config")
    flags = {name: value for name, value in given.settings.items() if name not in _OWN}
    return load(RunConfig, base=base, toml=Path(toml) if toml else None, overrides=flags)


def _preset(name: str) -> object:
    near = difflib.get_close_matches(name, PRESETS, n=1)
    if name not in PRESETS and near:
        raise ConfigError(f"no preset is called {name!r}", to_do=f"did you mean {near[0]!r}?")
    return preset(name)


def check(settings: RunConfig) -> str:
    """Check what the machine must have before anything is started; return where the text is from.

    Raises:
        DependencyMissing: torch is not installed or too old, or another library is not there.
        DeviceUnavailable: The wanted kind of device cannot be had.
        ConfigError: There is no text, or less than one step reads.
    """
    platform_check(settings.platform)
    for library, use in _NEEDED.items():
        if find_spec(library) is None:
            raise DependencyMissing(library, needed_for=use, install="pip install 'danaus[train]'")
    # Needs a library that was just looked for.
    from danaus.train.text import load_text, shape_of

    return load_text(settings.data, shape_of(settings.step)).source


def place(settings: RunConfig, given: Given) -> Path:
    """Return where the run's folder shall be."""
    if settings.run_dir is not None:
        return settings.run_dir
    name = given.values[0] if given.values else Path(given.settings["config"]).stem
    return default_run_path(name, dt.datetime.now().astimezone())


def begin(path: Path, settings: C) -> C:
    """Make the folder of a new run; return the settings as they are written there.

    Paths become absolute: the run may go on from another folder.
    """
    data = settings.data
    if data.path:
        data = dataclasses.replace(data, path=str(Path(data.path).absolute()))
    settings = dataclasses.replace(settings, run_dir=path.absolute(), data=data)
    # Where the hosts are of an authority of the user's own, so is the run.
    authority = Secret.load(settings.shared_secret).authority if settings.hosts else None
    # The run's controller holds it from here on.
    RunFolder.create(path, settings, authority).release()
    return settings


def _go_on(given: Given) -> int:
    if given.values or "config" in given.settings:
        raise ConfigError(
            what="a run that goes on keeps its settings",
            needed="--resume takes neither a preset nor --config",
            to_do="leave it out, or start a new run",
        )
    folder = RunFolder.open(Path(given.settings["resume"]))
    flags = {name: value for name, value in given.settings.items() if name not in _OWN}
    if "run_dir" in flags:
        raise ConfigError("--run-dir and --resume name two folders", to_do="leave out --run-dir")
    before = saved(folder)
    settings = resumed(before, flags)
    take_over = load(TrainCommand, overrides=_only(given, "take_over")).take_over
    with folder:
        # Now rather than after torch is loaded: another controller may be alive.
        folder.hold(take_over=take_over)
    if (end := read_end(folder)) is not None:
        print(f"{finished_words(end)}\nthere is nothing left to do")
        return 0
    chaos = _chaos(given, settings)
    text = check(settings)
    adopt = settings == before and chaos is None  # processes that live know of no changes
    settings = dataclasses.replace(settings, run_dir=folder.path)
    return _train(settings, text, resume=True, chaos=chaos, adopt=adopt)


def _only(given: Given, name: str) -> dict[str, str]:
    return {name: given.settings[name]} if name in given.settings else {}


def _train(
    settings: RunConfig,
    text: str,
    *,
    resume: bool,
    chaos: FaultPlan | None,
    adopt: bool = True,
) -> int:
    # Loads the actor runtime, which neither help nor bad input needs.
    from danaus.app.experiment import RunOrder
    from danaus.app.launch import run_folder_of, run_training

    path = run_folder_of(settings).path
    order = RunOrder(path, settings, text=text, resume=resume, chaos=chaos, adopt=adopt)
    return run_training(order, console=run_console())


def _list_presets(given: Given) -> int:
    if given.settings:
        names = ", ".join(f"--{name}" for name in given.settings)
        raise ConfigError(
            f"{names} without a preset", f"one of {', '.join(PRESETS)}, or --config FILE"
        )
    width = max(map(len, PRESETS))
    print("Presets:\n")
    for name, each in PRESETS.items():
        print(f"  {name:<{width}}  {each.about}")
    print("\nStart one with: danaus train debug --replicas 3")
    return 0
