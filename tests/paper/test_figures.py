"""The figures of the paper from the command line: all of them on a task with a closed form, at sizes
that take seconds, and once more from the records alone.
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
    "more_seeds": 1,
    "inner": [1, 3, 19],
    "printed": {"19": "PCE (P=1)"},
    "main": [19],
    "score_has_lower_bias": True,
}
SETTINGS = [
    *("evaluation.outer=16", "evaluation.inner=200", "evaluation.references=false"),
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
    patch.setitem(items["gradients"], "parts", [4, 1])
    below = {"outer": 32, "inner": 100, "smc": 16}
    patch.setitem(items["gradients"], "below_one", below)
    yield tmp_path_factory.mktemp("paper")
    patch.undo()


def paper(study, item, capsys, *options):
    settings = [part for each in SETTINGS for part in ("--set", each)]
    words = ["paper", item, "--scale", "0.001", "--repeats", "1", "--out", str(study)]
    with pytest.raises(SystemExit) as ended:
        main([*words, *settings, "--json", *options])
    assert not ended.value.code
    return json.loads(capsys.readouterr().out)["items"][0]


def lines(study, item):
    return list(csv.DictReader((study / f"{item}.csv").read_text().splitlines()))


def test_eig_against_nle_has_a_training_for_every_share(study, capsys):
    page = paper(study, "eig-nle", capsys)
    print(page["sections"])
