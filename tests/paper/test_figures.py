"""The figures of the paper from the command line: all of them on a task with a closed form, at
sizes that take seconds, and once more from the records alone.
"""

import csv
import json

import pytest

from scorebed.cli import main
from scorebed.paper.data import read

TASK = "linear-gaussian"
GRADIENTS = {
    "words": "a closed form",
    "table": "table1",
    "score_row": "ScoreBED (P=1)",
    "reference": "PCE (P=1)",
    "more_seeds": 0,
    "inner": [3, 19],
    "printed": {"19": "PCE (P=1)"},
    "main": [19],
    "score_has_lower_bias": True,
}
SETTINGS = [
    *(
        "evaluation.tight_outer=0",
        "evaluation.outer=16",
        "evaluation.inner=200",
        "evaluation.references=false",
    ),
    *("score.steps=32", "score.batch=8", "score.width=8", "score.blocks=1", "score.heads=1"),
    *("policy_training.steps=4", "policy_training.batch=8", "policy_training.monitor_inner=50"),
]


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """Tables and figures of the paper for one small task instead of its own."""
    items, patch = read("items"), pytest.MonkeyPatch()
    patch.setitem(items["tables"]["table1"], "tasks", [TASK])
    patch.setitem(
        items["tables"]["table1"],
        "rows",
        [
            {"label": "ScoreBED (P=1)", "method": "score", "policies": 1},
            {"label": "PCE (P=1)", "method": "pce", "policies": 1},
        ],
    )
    for name, values in {
        "eig-nle": {"task": TASK, "parts": [2, 1]},
        "training-curves": {"task": TASK, "estimates": 4},
        "stability": {"tasks": [TASK]},
        "jacobian": {"tasks": [TASK], "outer": 64},
    }.items():
        for key, value in values.items():
            patch.setitem(items["figures"][name], key, value)
    patch.setitem(items["gradients"], "tasks", {TASK: GRADIENTS})
    patch.setitem(items["gradients"], "parts", [4])
    below = {"outer": 32, "inner": 100, "smc": 16}
    patch.setitem(items["gradients"], "below_one", below)
    yield tmp_path_factory.mktemp("paper")
    patch.undo()


def paper(study, item, capsys, *options):
    settings = [part for each in SETTINGS for part in ("--set", each)]
    words = ["paper", item, "--scale", "0.001", "--repeats", "1"]
    options = options or ("--out", str(study))
    with pytest.raises(SystemExit) as ended:
        main([*words, *settings, "--json", *options])
    assert not ended.value.code
    return json.loads(capsys.readouterr().out)["items"][0]


def lines(study, item):
    return list(csv.DictReader((study / f"{item}.csv").read_text().splitlines()))


@pytest.mark.slow
def test_eig_against_nle_has_a_training_of_its_own_for_every_share(study, capsys):
    paper(study, "eig-nle", capsys)
    found = lines(study, "eig-nle")
    assert [(row["method"], row["part"]) for row in found] == [
        (method, part) for part in ("2", "1") for method in ("ScoreBED (P=1)", "PCE (P=1)")
    ]
    assert (study / "runs" / f"{TASK}-score-1of2-P1" / "record.json").exists()


@pytest.mark.slow
def test_training_curves_count_stage_one_apart(study, capsys):
    page = paper(study, "training-curves", capsys)
    found = lines(study, "training-curves")
    ours = [row for row in found if row["method"] == "ScoreBED (P=1)"]
    assert [float(row["step"]) for row in ours] == [1, 2, 3, 4]
    horizon, batch, steps = 3, 8, 32
    for row in ours:
        assert float(row["nle"]) == float(row["step"]) * batch * horizon
        assert float(row["nle_with_stage_1"]) - float(row["nle"]) == steps * batch * horizon
    rival = next(row for row in found if row["method"] == "PCE (P=1)")
    assert float(rival["nle"]) == 20 * batch * horizon  # M + 1 = 20 a step
    assert rival["nle"] == rival["nle_with_stage_1"]
    assert len([note for note in page["sections"][0]["notes"] if "trains faster" in note]) == 3


@pytest.mark.slow
def test_gradient_errors_are_of_every_score_milestone_and_number(study, capsys):
    paper(study, "gradient-mse", capsys)
    found = lines(study, "gradient-mse")
    scores = [(row["seed"], row["score_step"]) for row in found if row["seed"]]
    assert scores == [(seed, step) for seed in "0" for step in ("8",)]
    assert [row["inner"] for row in found if row["inner"]] == ["3", "19"]
    assert {row["truth"] for row in found} == {"exact"}


@pytest.mark.slow
def test_policies_are_trained_with_milestones(study, capsys):
    paper(study, "stability", capsys)
    found = lines(study, "stability")
    assert [(row["seed"], row["score_step"]) for row in found] == [
        (seed, step) for seed in "0" for step in ("8",)
    ]


@pytest.mark.slow
def test_policies_are_set_against_the_bias_of_their_gradients(study, capsys):
    paper(study, "stability", capsys)
    found = lines(study, "stability")
    paper(study, "eig-bias", capsys)
    points = lines(study, "eig-bias")
    assert [float(row["eig"]) for row in points[:1]] == [float(row["lower"]) for row in found]
    assert [row["main"] for row in points] == ["False", "False", "True"]
    biases = [row["squared_bias"] for row in lines(study, "gradient-mse")]
    assert [row["squared_bias"] for row in points] == biases


@pytest.mark.slow
def test_conditioning_has_both_kinds_of_designs(study, capsys):
    page = paper(study, "jacobian", capsys)
    kinds = [row["designs"] for row in lines(study, "jacobian")]
    assert kinds == ["sampler"] * 16 + ["policy"] * 16
    assert any("worse conditioned" in note for note in page["sections"][0]["notes"])


@pytest.mark.slow
def test_all_figures_come_from_their_records_alone(study, capsys, tmp_path):
    """Nothing is run: there are no run folders where the pages are written."""
    for item in ("eig-nle", "training-curves", "gradient-mse", "eig-bias", "stability", "jacobian"):
        before = (study / f"{item}.csv").read_text()
        options = ("--render-only", "--records", str(study / "records"), "--out", str(tmp_path))
        paper(study, item, capsys, *options)
        assert (tmp_path / f"{item}.csv").read_text() == before
        assert (tmp_path / f"{item}.png").read_bytes().startswith(b"\x89PNG")
    assert not (tmp_path / "runs").exists()
