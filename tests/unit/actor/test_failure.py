"""What a person is told of a failure fits on a screen and leads with the cause (A-8)."""

from __future__ import annotations

from danaus.actor.failure import MeshFailure

SCREEN_LINES = 45


def failure(mesh: str, reason: str, **facts) -> MeshFailure:
    return MeshFailure(mesh, ({"gpus": 1},), "exception", reason, **facts)


def test_a_report_leads_with_what_was_raised_first():
    first = failure("inner", "ZeroDivisionError: division by zero", log_tail=("last words",))
    second = failure("middle", "KeyError: 'x'", cause=first)
    lines = failure("outer", "ValueError: no", cause=second).report().splitlines()
    assert lines == [
        "inner[gpus=1] failed (exception): ZeroDivisionError: division by zero",
        "  | last words",
        "which led to: middle[gpus=1] failed (exception): KeyError: 'x'",
        "which led to: outer[gpus=1] failed (exception): ValueError: no",
    ]


def test_a_report_fits_on_a_screen_whatever_happened():
    text = "\n".join(f"  File {k}, in f" for k in range(500)) + "\nRecursionError: too deep"
    log = tuple("x" * 10_000 for _ in range(100))
    worst = failure("m0", "RecursionError: too deep", traceback=text, log_tail=log)
    for k in range(20):
        worst = failure(f"m{k + 1}", "again", traceback=text, log_tail=log, cause=worst)
    lines = worst.report().splitlines()
    assert len(lines) <= SCREEN_LINES
    assert max(map(len, lines)) <= 160
    assert lines[0] == "m0[gpus=1] failed (exception): RecursionError: too deep"
    assert "  RecursionError: too deep" in lines
    assert lines[1] == "  (492 lines before)"
    assert any(line.startswith("which led to: m20") for line in lines)


def test_a_short_report_leaves_nothing_out():
    lines = failure("m", "ValueError: no", traceback="a\nb\n", log_tail=("c", "d")).report()
    assert lines.splitlines()[1:] == ["  a", "  b", "  | c", "  | d"]


def test_of_many_points_some_are_named():
    points = tuple({"gpus": k} for k in range(8))
    lost = MeshFailure("m", points, "host_lost", "host a is lost:\nits agent ended")
    assert lost.report() == (
        "m[gpus=0, gpus=1, gpus=2, gpus=3, … 8 in all] failed (host_lost): "
        "host a is lost: its agent ended"
    )


def test_a_failure_tells_its_mesh_and_the_place_if_it_is_one():
    one = failure("m", "no")
    assert (one.mesh_name, one.coordinate) == ("m", {"gpus": 1})
    assert MeshFailure("m", ({"r": 0}, {"r": 1}), "host_lost", "cut off").coordinate is None
