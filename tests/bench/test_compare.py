"""Methods side by side: equal terms for all, a table, a picture, and runs that can be resumed."""

import contextlib
import dataclasses
import json

import pytest

from pools import Here
from records import some_bounds, some_record
from scorebed.bench.compare import CurvePoint, Entry, chosen, comparable, remarks, table
from scorebed.cli._app import run as main
from scorebed.cli._many import ManyOptions
from scorebed.errors import UnknownNameError
from scorebed.methods import METHODS
from scorebed.plots.comparison import draw_comparison
from scorebed.runs.config import overrides_for, read_toml
from scorebed.runs.record import RepeatRecord
from scorebed.runs.spending import Pace, Spending, _pace
from scorebed.tasks import make_task

SMALL = [
    "evaluation.outer=8",
    "evaluation.tight_outer=0",
    "evaluation.inner=50",
    "policy_training.batch=4",
    "static.inner=3",
    "policy_training.monitor_inner=10",
]
SETTINGS = [part for value in SMALL for part in ("--set", value)]


def entry(method: str, *, saturated: float = 0.0, nle: int = 1234567) -> Entry:
    seconds = {
        "score-0": 10.0,
        "policy-0-0": 5.0,
        "bounds-0": 100.0,
        "choose-0": 7.0,
        "total": 122.0,
    }
    bounds = some_bounds(saturated=saturated)
    record = some_record(method=method, bounds=bounds, nle=nle, seconds=seconds)
    return Entry(method, record, [CurvePoint(1e5, 7.0, 2.0), CurvePoint(1e6, 15.0, 3.0)])


def test_all_means_the_methods_that_serve_a_task():
    pendulum, sources = (
        ("pendulum", make_task("pendulum"), "quick"),
        ("location-finding", make_task("location-finding"), "quick"),
    )
    assert set(METHODS) - set(comparable(*pendulum)) == {"predictive"}
    assert set(METHODS) - set(comparable(*sources)) == {"predictive", "iosmc"}
    assert chosen("pce, random", *pendulum) == ("pce", "random")
    with pytest.raises(UnknownNameError, match="pce"):
        chosen("pcee", *pendulum)
    with pytest.raises(UnknownNameError, match="iosmc"):
        chosen("iosmc", *sources)


def test_a_row_has_bounds_with_errors_nle_and_the_seconds_of_training_alone():
    found = entry("pce").row()
    assert found == ["pce", "3.000 ± 0.100", "3.500 ± 0.200", "1,234,567", "1,234,567", "15"]


def test_a_row_of_several_repeats_has_what_one_of_them_spent_beside_the_whole():
    repeats = [RepeatRecord(bounds=some_bounds(), nle=n) for n in (900, 1000)]
    several = dataclasses.replace(entry("pce", nle=1500).record, repeats=repeats)
    assert Entry("pce", several, []).row()[3:5] == ["1,000", "1,500"]


def test_a_bound_at_its_ceiling_is_marked():
    saturated = entry("myopic", saturated=0.9)
    assert saturated.row()[1].endswith("*")
    assert "6.90" in remarks([entry("pce"), saturated])[0]
    assert remarks([entry("pce")]) == []
    assert table([saturated]).count("\n| ") == 2


@pytest.mark.parametrize(("against", "spent"), [("nle", [1e5, 1e6]), ("seconds", [7.0, 15.0])])
def test_the_picture_has_every_method(against, spent):
    floor = entry("random", nle=0)._replace(curve=[])
    figure = draw_comparison([entry("pce"), floor], "title", against=against)
    assert list(figure.axes[0].lines[0].get_xdata()) == spent
    labels = figure.axes[0].get_legend_handles_labels()[1]
    assert sorted(label.split()[0] for label in labels) == ["pce", "random"]


def test_the_pace_is_found_from_the_time_after_each_step():
    """A step of 1 s, 20 s before the first; estimates of 3 s after every third, the first with 5 s
    of compilation.
    """
    seconds = [21.0, 22.0, 31.0, 32.0, 33.0, 37.0, 38.0, 39.0, 43.0]
    assert _pace(seconds, every=3) == Pace(before=25.0, step=1.0, monitor=3.0)
    assert _pace([21.0, 22.0, 23.0], every=0) == Pace(before=20.0, step=1.0, monitor=0.0)
    assert Pace(25.0, 1.0, 3.0).steps(225.0, every=3) == 100


def test_spending_in_words():
    assert str(Spending(budget=2 * 10**8)) == "200,000,000 likelihood evaluations"
    assert str(Spending(minutes=0.5)) == "0.5 minutes"


def test_settings_concern_the_methods_that_use_them():
    settings = ["seed=1", "policy_training.batch=4", "static.inner=3", "score.seeds=2"]
    assert overrides_for("random", settings) == ["seed=1"]
    assert overrides_for("static", settings) == settings[:3]
    assert overrides_for("score", settings) == [*settings[:2], settings[3]]
    assert overrides_for("random", ["no.such=1"]) == ["no.such=1"]  # to be refused


@pytest.mark.parametrize(
    "arguments",
    [
        ["compare", "--task", "pendulum"],
        ["compare", "--task", "pendulum", "--budget", "1e8", "--minutes", "4"],
        ["compare", "--task", "pendulum", "--minutes", "-1"],
        ["compare", "--task", "pendulum", "--budget", "1e400"],
        ["compare", "--task", "pendulum", "--budget", "1e8", "--methods", "score,pec"],
        ["compare", "--task", "pendulun", "--budget", "1e8"],
        ["compare", "--task", "pendulum", "--minutes", "1", "--workers", "2"],
        ["compare", "--task", "pendulum", "--budget", "1e8", "--dask", "here", "--slurm"],
        ["laptop", "--task", "pendulum", "--workers", "2"],
        ["compared", "--task", "pendulum", "--budget", "1e8"],
    ],
)
def test_bad_input_is_one_line(tmp_path, monkeypatch, capsys, arguments):
    monkeypatch.chdir(tmp_path)
    assert main(["bench", *arguments]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_methods_are_shared_out_and_the_comparison_finds_them(tmp_path, monkeypatch, capsys):
    """The command with workers gives what it gives without, and reports what failed."""
    out, pools = tmp_path / "compared", [Here(), Here(poison="random")]
    monkeypatch.setattr(ManyOptions, "pool", lambda _: contextlib.nullcontext(pools[0]))
    arguments = ["bench", "compare", "--task", "linear-gaussian", "--budget", "10000"]
    arguments += ["--out", str(out), "--methods", "random", *SETTINGS, "--workers", "2", "--json"]
    assert main(arguments) == 0
    assert pools[0].done == ["random"]
    record = json.loads((out / "random" / "record.json").read_text())
    found = json.loads(capsys.readouterr().out)["methods"]["random"]
    assert found["lower"] == record["lower"]
    del pools[0]
    assert main(arguments) == 2
    assert "1 piece of the work, got 3 failures each (random: poison)" in capsys.readouterr().err
    assert main([*arguments, "--slurm"]) == 0
    script = (out / "array.sh").read_text()
    assert "#SBATCH --array=0-2\n" in script
    assert "scorebed bench compare --task linear-gaussian --methods random --budget 10000" in script
    assert f"--set {SMALL[0]}" in script


@pytest.mark.slow
def test_a_comparison_trains_each_method_and_goes_on_where_it_was(tmp_path, capsys):
    out = tmp_path / "compared"
    arguments = [
        "bench",
        "compare",
        "--task",
        "linear-gaussian",
        "--budget",
        "10000",
        "--out",
        str(out),
        *SETTINGS,
    ]
    assert main([*arguments, "--methods", "random"]) == 0
    first = (out / "random" / "record.json").read_bytes()
    capsys.readouterr()
    assert main([*arguments, "--methods", "random,static", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (out / "random" / "record.json").read_bytes() == first
    assert set(answer["methods"]) == {"random", "static"}
    assert answer["methods"]["static"]["nle"] <= 10_000
    assert (out / "compare.png").stat().st_size > 10_000
    assert "static" in (out / "compare.md").read_text()


@pytest.mark.slow
def test_minutes_become_steps(tmp_path, capsys):
    """How long they take is for `benchmarks/minutes.py`."""
    arguments = [
        "train",
        "linear-gaussian",
        "--method",
        "pce",
        "--minutes",
        "0.2",
        "--out",
        str(tmp_path / "run"),
    ]
    settings = [part for value in (*SMALL[:-2], SMALL[-1]) for part in ("--set", value)]
    assert main([*arguments, *settings, "--set", "evaluation.references=false", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["seconds"]["policy-0-0"] > 0
    steps = read_toml(tmp_path / "run" / "config.toml")["policy_training"]["steps"]
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    taken = [json.loads(line) for line in lines]
    assert max(each["step"] for each in taken if each["stage"] == "policy-0-0") == steps
    assert steps > 1
