"""`scorebed tasks`: what it says is what the tasks are."""

import json

import pytest

from scorebed.cli import main
from scorebed.tasks import TASKS, make_task
from scorebed.tasks.base import IID, History, Markov


@pytest.fixture
def documents(capsys):
    with pytest.raises(SystemExit) as exit_:
        main(["tasks", "--json"])
    captured = capsys.readouterr()
    assert (exit_.value.code, captured.err) == (0, "")
    return {task["name"]: task for task in json.loads(captured.out)["tasks"]}


def test_json_describes_every_task(documents):
    assert list(documents) == list(TASKS)
    for name, found in documents.items():
        task = make_task(name)
        assert isinstance(
            task, {"iid": IID, "markov": Markov, "history": History}[found["structure"]]
        )
        sizes = {
            "horizon": task.horizon,
            "parameter_dim": task.prior.dim,
            "design_dim": task.designs.dim,
        }
        assert found.items() >= sizes.items()
        assert found["outcome_dim"] == task.outcome_dim
        for key, quantities in (
            ("parameters", task.prior.quantities),
            ("designs", task.designs.quantities),
        ):
            assert [(q["name"], q["unit"]) for q in found[key]] == [
                (q.name, q.unit) for q in quantities
            ]


def test_the_papers_tasks_have_the_papers_sizes(documents):
    sizes = ("horizon", "parameter_dim", "design_dim", "outcome_dim", "structure")
    expected = {
        "location-finding": (30, 4, 2, 1, "iid"),
        "location-finding-3d": (30, 30, 3, 1, "iid"),
        "pendulum": (50, 2, 1, 2, "markov"),
        "cart-pole": (50, 3, 1, 4, "markov"),
        "double-link": (50, 4, 2, 4, "markov"),
        "gravimetry": (20, 3, 1, 1, "iid"),
    }
    assert {name: tuple(documents[name][size] for size in sizes) for name in expected} == expected


def test_limits_are_numbers_in_a_box_and_null_without_one(documents):
    assert [(d["low"], d["high"]) for d in documents["double-link"]["designs"]] == [
        (-4, 4),
        (-2, 2),
    ]
    assert documents["gravimetry"]["designs"] == [
        {"name": "sensor x", "unit": "m", "low": None, "high": None}
    ]


def test_text_shows_names_dimensions_units_and_limits(capsys):
    with pytest.raises(SystemExit):
        main(["tasks"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + len(TASKS)
    (double_link,) = (line for line in lines if line.startswith("double-link "))
    assert double_link.split(maxsplit=6)[:6] == ["double-link", "markov", "50", "4", "2", "4"]
    assert double_link.endswith("torque 1 [N m] -4 to 4, torque 2 [N m] -2 to 2")
