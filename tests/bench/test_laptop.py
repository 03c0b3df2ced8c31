"""What a preset reaches: the table, and runs that lend their scores."""

import json
import shutil
from typing import Any

import pytest

from records import some_bounds, some_record
from scorebed.bench.laptop import COLUMNS, Reached, published, table
from scorebed.cli._app import run as main
from scorebed.plots.comparison import draw_bench
from scorebed.runs.record import PairedRecord, Record
from scorebed.tasks import TASKS

TINY = [
    "score.steps=20",
    "score.batch=8",
    "score.width=8",
    "score.particles=2",
    "score.cloud=2",
    "policy_training.steps=10",
    "policy_training.batch=8",
    "policy_training.monitor_every=5",
    "policy_training.monitor_inner=20",
    "evaluation.outer=8",
    "evaluation.tight_outer=0",
    "evaluation.inner=50",
]
SETTINGS = [part for value in TINY for part in ("--set", value)]


def record(lower: float, **values: Any) -> Record:
    training = {"score-0": 10.0, "policy-0-0": 5.0}
    bounds = {"bounds-0": 100.0, "tight-0": 50.0, "static": 7.0}
    seconds = training | bounds | {"total": 172.0}
    return some_record(bounds=some_bounds(lower), seconds=seconds, **values)


def test_the_tasks_of_the_paper_are_tasks_of_ours():
    assert set(published()) <= set(TASKS)


def test_a_row_of_one_seed_has_the_errors_of_its_bounds_and_of_several_those_across_seeds():
    references = {"random": some_bounds(1.0), "static": some_bounds(2.0)}
    errors = {"lower_se": 0.1, "upper_se": 0.2}
    one, other = {"lower": 4.2, "upper": 4.3} | errors, {"lower": 6.2, "upper": 6.5} | errors
    greedy = {"lower": 2.9, "upper": 3.0, "outer": 64, "designs": "greedy"} | errors
    behind = PairedRecord(**greedy, advantage=1.3, advantage_se=0.1)
    first = record(3.0, references=references)
    alone = Reached("pendulum", "score", [first], [one], {"greedy": behind})
    assert alone.row()[:8] == [
        "pendulum",
        "score",
        "plan",
        "3.00 ± 0.10",
        "3.50 ± 0.20",
        "4.20 ± 0.10 – 4.30 ± 0.20",
        "+1.300 ± 0.100",
        "stands for it",
    ]
    assert alone.row()[8:] == ["1.00", "2.00", "1,000", "15", "3.95 – 3.95", "yes"]
    near = Reached("pendulum", "score", [first], [one | {"lower": 4.1}], {})
    assert near.row()[-1] == "not decided"
    without = Reached("pendulum", "score", [first], [], {})
    assert [without.row()[i] for i in (5, 6, 7, -1)] == [""] * 4
    several = Reached("pendulum", "jointscore", [record(3.0), record(5.0)], [one, other], {})
    assert several.row()[3:6] == ["4.00 ± 1.00", "4.50 ± 1.00", "5.20 ± 1.00 – 5.40 ± 1.10"]
    assert table([alone]).splitlines()[0].count("|") == len(COLUMNS) + 1
    # The picture has every figure of the rows, and each kind of mark once in its legend.
    (axes,) = draw_bench([alone, several, without], published(), "a preset").axes
    drawn = {round(float(x), 2) for line in axes.lines for x in line.get_xdata()}
    assert {3.0, 4.0, 4.2, 5.2, 1.0, 2.0, 3.95} <= drawn


@pytest.mark.parametrize(
    "arguments",
    [
        ["--task", "pendulun"],
        ["--task", "all", "--preset", "quik"],
        ["--task", "all", "--seeds", "0"],
        ["--task", "all", "--methods", "pce"],
    ],
)
def test_bad_input_of_the_bench_is_one_line(tmp_path, monkeypatch, capsys, arguments):
    monkeypatch.chdir(tmp_path)
    assert main(["bench", "laptop", *arguments]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_both_methods_are_trained_and_the_joint_one_starts_from_the_score_of_the_other(
    tmp_path, capsys
):
    out = tmp_path / "bench"
    arguments = [
        "bench",
        "laptop",
        "--task",
        "linear-gaussian",
        "--preset",
        "quick",
        "--out",
        str(out),
        *SETTINGS,
    ]
    assert main([*arguments, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [each["method"] for each in answer["tasks"]] == ["score", "jointscore"]
    name = "score-0.safetensors"
    scores = [
        (out / f"linear-gaussian-{method}-0" / name).read_bytes()
        for method in ("score", "jointscore")
    ]
    assert scores[0] == scores[1]
    assert "jointscore" in (out / "table.md").read_text()
    # What the folder has is not trained again, and further seeds in it are shown.
    other = shutil.copytree(out / "linear-gaussian-score-0", out / "linear-gaussian-score-1")
    config = (other / "config.toml").read_text()
    for old, new in (("seed = 0", "seed = 1"), ("references = true", "references = false")):
        assert old in config
        config = config.replace(old, new)
    (other / "config.toml").write_text(config)
    assert main([*arguments, "--json"]) == 0
    again = json.loads(capsys.readouterr().out)["tasks"]
    assert [len(each["records"]) for each in again] == [2, 1]
