"""Pages of figures from records made up by hand, so that nothing is trained: what they say and draw
follows from the numbers.
"""

import math
from pathlib import Path

import pytest

from scorebed.paper.figures import FIGURES
from scorebed.paper.figures.eig_bias import contrastive_rows, policies_of
from scorebed.paper.output import comma_separated, markdown
from scorebed.paper.shares import share_of
from scorebed.paper.study import Study
from scorebed.paper.trained_scores import named_row, trained_scores
from scorebed.paper.units import UnitRecord
from scorebed.runs.config import to_values

STUDY = Study(out=Path("nowhere"), scale=0.01, repeats=2)


def run(*lowers, **more):
    """What a run's record would hold."""
    return {"repeats": [{"lower": x, "tight": None, "nle": 100} for x in lowers], **more}


def page(item, results):
    records = {name: UnitRecord(name, {}, result) for name, result in results.items()}
    return FIGURES[item].page(STUDY, records)


@pytest.fixture(scope="module")
def row():
    return named_row("table1", "location-finding-3d", "ScoreBED (P=1)")


@pytest.mark.parametrize("item", FIGURES)
def test_a_figure_without_records_says_what_the_paper_shows_and_no_more(item):
    empty = page(item, {})
    assert not empty.data
    assert f"0 of {len(FIGURES[item].units(STUDY))} pieces" in empty.lead[0]
    text = markdown(empty, item, command="scorebed paper")
    assert "The paper's figure: " in text
    assert "Holds here" not in text


def test_a_share_of_a_budget_takes_steps_and_keeps_networks(row):
    """A sixteenth of the evaluations, in both stages alike; the network of the whole budget."""
    unit = share_of(row, 16)
    whole, part = (to_values(each.planned(s).config) for each, s in _both(row, unit))
    for stage in ("score", "policy_training"):
        spent = [values[stage]["steps"] * values[stage]["batch"] for values in (whole, part)]
        assert spent[1] == pytest.approx(spent[0] / 16, rel=0.02)
    for size in ("width", "blocks", "heads"):
        assert part["score"][size] == whole["score"][size]
    assert unit.name != row.name
    assert share_of(row, 1) is row


def _both(row, unit):
    return (row, STUDY), (unit.row, unit.within(STUDY))


def test_eig_against_nle_compares_within_budgets():
    units = FIGURES["eig-nle"].units(STUDY)
    results = {
        unit.name: run(*(9.0, 9.1) if "-score-" in unit.name else (8.0, 8.1)) for unit in units
    }
    found = page("eig-nle", results)
    assert len(found.data) == len(units)
    (claims,) = [each.notes for each in found.sections if each.table is None]
    assert claims[0].startswith("Holds here: ScoreBED (P=1) is above every other method")
    assert "5 of 5 budgets" in claims[0]


def test_scores_of_one_run_and_of_several_count_as_seeds():
    loose = trained_scores("location-finding", STUDY)
    assert [(each.number, each.seed) for each in loose] == [(0, 0), (0, 1), (0, 2)]
    assert len({each.row.name for each in loose}) == 3
    together = trained_scores("cart-pole", STUDY)
    assert [(each.number, each.seed) for each in together] == [(0, 0), (1, 1), (2, 2)]
    assert len({each.row.name for each in together}) == 1


def test_a_bias_meets_the_policy_that_it_trained():
    """EIG falls with the bias by construction; PCE's rows of the tables and the whole scores are
    those of the main budgets.
    """
    task = "pendulum"
    policies, rows = policies_of(task, STUDY), contrastive_rows(task)
    scores = [
        {"seed": each.score.seed, "part": each.part, "step": 100 // each.part} | bias(n + 1.0)
        for n, each in enumerate(policies)
    ]
    rivals = [{"inner": inner} | bias(0.5 / inner) for inner in rows]
    errors = {"scores": scores, "rivals": rivals, "truth": "made up", "truth_doubt": ""}
    results = {each.name: run(-float(n)) for n, each in enumerate(policies)}
    results |= {each.name: run(5.0 + n) for n, each in enumerate(rows.values())}
    results[f"{task}-gradients"] = errors
    found = page("eig-bias", results)
    assert [line["eig"] for line in found.data[:3]] == [0.0, -1.0, -2.0]
    assert sum(line["main"] for line in found.data) == 3 + 2
    notes = next(each.notes for each in found.sections if each.title == "stochastic pendulum")
    assert all(note.startswith("Holds here") for note in notes)
    assert "Spearman's ρ = -1.00" in notes[0]


def bias(value):
    return {"squared_bias": value, "squared_bias_se": value / 10, "variance": 1.0}


def test_gradient_errors_say_whose_bias_is_lower():
    scores = [{"seed": 0, "part": p, "step": 96 // p} | bias(float(p)) for p in (16, 8, 4, 2, 1)]
    rivals = [{"inner": 7} | bias(9.0), {"inner": 399} | bias(0.01)]
    result = {
        "scores": scores,
        "rivals": rivals,
        "squared_norm": 4.0,
        "squared_norm_se": 0.1,
        "outer": 32,
        "truth": "made up",
        "truth_doubt": "it is made up",
    }
    found = page("gradient-mse", {"pendulum-gradients": result})
    (section,) = found.sections
    assert section.notes[0].startswith("Does not hold here"), "the paper has ScoreBED above M = 7"
    assert section.notes[1].startswith("Holds here")
    assert "in doubt: it is made up" in section.notes[-1]
    assert len(found.data) == 7
    assert comma_separated(found).count("\n") == 8


def test_training_curves_are_drawn_with_and_without_stage_one():
    names = [unit.name for unit in FIGURES["training-curves"].units(STUDY)]
    curve = {"steps": [1, 2], "inner": 20, "final": {"lower": 2.0}}
    results = {
        names[1]: {**curve, "lower": [1.0, 3.0], "nle_per_step": 10, "nle_upfront": 1000},
        names[2]: {**curve, "lower": [1.0, 2.0], "nle_per_step": 200, "nle_upfront": 0},
    }
    found = page("training-curves", results)
    spent = [(line["nle"], line["nle_with_stage_1"]) for line in found.data]
    assert spent == [(10, 1010), (20, 1020), (200, 200), (400, 400)]
    words = [note.split(":")[0] for note in found.sections[0].notes[:3]]
    assert words == ["Does not hold here", "Holds here", "Does not hold here"]
    assert f"{math.log(21):.2f} nats" in found.sections[0].notes[3]


def test_conditioning_reads_what_is_not_finite():
    names = [unit.name for unit in FIGURES["jacobian"].units(STUDY)]
    calm = {"condition": [1.0, 2.0, 3.0, 4.0, 5.0], "score_mse": [1.0, 2.0, 3.0, 4.0, None]}
    wild = {"condition": [100.0, 200.0, 300.0, 400.0, None], "score_mse": [5.0, 4.0, 3.0, 2.0, 1.0]}
    designs = {"sampler": calm, "policy": wild}
    result = {"designs": designs, "policy": "gru", "truth": "made up", "truth_doubt": ""}
    found = page("jacobian", {names[1]: result})
    notes = found.sections[0].notes
    assert notes[0].startswith("Holds here: Under the final policy")
    assert "Spearman's ρ = +1.00 over 4 points" in notes[1]
    assert "Spearman's ρ = -1.00 over 5 points" in notes[2]
