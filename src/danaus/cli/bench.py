"""``danaus bench``: what failures cost, how much a run survives, what a message costs, measured."""

from __future__ import annotations

from pathlib import Path

from danaus.app.bench_actor_settings import ActorBenchConfig
from danaus.app.bench_ft_settings import FtBenchConfig
from danaus.app.bench_soak_settings import SoakConfig
from danaus.app.progress import run_console
from danaus.app.settings import BenchConfig, CampaignConfig, RunConfig
from danaus.cli.arguments import build, read, show_help, wants_help
from danaus.cli.train import check
from danaus.core.errors import ConfigError

_BENCHES = {
    "recovery": BenchConfig,
    "campaign": CampaignConfig,
    "ft": FtBenchConfig,
    "actor": ActorBenchConfig,
    "soak": SoakConfig,
}


def run(arguments: list[str]) -> int:
    """Run a bench; return the exit code."""
    name = arguments[0] if arguments else ""
    if wants_help(arguments):
        asked_for = [name] if name in _BENCHES else [*_BENCHES]
        return max(show_help(_BENCHES[each], f"bench {each}") for each in asked_for)
    if name not in _BENCHES:
        asked = f"danaus has no bench {name!r}" if name else "a bench needs a name"
        known = ", ".join(f"danaus bench {each}" for each in _BENCHES)
        raise ConfigError(asked, to_do=f"there is: {known}")
    benches = {
        "recovery": _recovery,
        "campaign": _campaign,
        "ft": _ft,
        "actor": _actor,
        "soak": _soak,
    }
    return benches[name](arguments[1:])


def _recovery(arguments: list[str]) -> int:
    given = read(arguments, BenchConfig, "bench recovery")
    settings = build(BenchConfig, given, (), "bench recovery")
    _check_file("out", settings.out)
    check(RunConfig(replicas=settings.replicas))
    from danaus.app.bench_recovery import run_bench

    code: int = run_bench(settings, console=run_console())
    return code


def _campaign(arguments: list[str]) -> int:
    given = read(arguments, CampaignConfig, "bench campaign")
    settings = build(CampaignConfig, given, (), "bench campaign")
    _check_file("out", settings.out)
    _check_file("docs", settings.docs)
    check(RunConfig(replicas=settings.replicas))
    from danaus.app.bench_campaign import run_campaign

    code: int = run_campaign(settings, console=run_console())
    return code


def _ft(arguments: list[str]) -> int:
    given = read(arguments, FtBenchConfig, "bench ft")
    settings = build(FtBenchConfig, given, (), "bench ft")
    _check_file("out", settings.out)
    check(RunConfig())
    from danaus.app.bench_ft import run_bench

    code: int = run_bench(settings, console=run_console())
    return code


def _actor(arguments: list[str]) -> int:
    given = read(arguments, ActorBenchConfig, "bench actor")
    settings = build(ActorBenchConfig, given, (), "bench actor")
    _check_file("out", settings.out)
    from danaus.app.bench_actor import run_bench

    code: int = run_bench(settings, console=run_console())
    return code


def _soak(arguments: list[str]) -> int:
    settings = build(SoakConfig, read(arguments, SoakConfig, "bench soak"), (), "bench soak")
    _check_file("out", settings.out)
    from danaus.app.bench_soak import run_soak

    code: int = run_soak(settings, console=run_console())
    return code


def _check_file(name: str, path: Path | None) -> None:
    if path is not None and not path.absolute().parent.is_dir():
        raise ConfigError(
            f"--{name} {path} cannot be written", "its folder must exist", "make that first"
        )
