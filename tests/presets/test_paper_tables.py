"""The tables of the paper, typed in by hand, against what `--preset paper` resolves to.

Appendix "Experimental Details" (policy training, score network architecture and training, sample
sizes of the bounds), "NLE Values" (the three budget tables, IO-SMC²) and "MLMC Results". Where the
authors' program made the figures otherwise than the paper reads, the preset follows it, and a
comment here says so. Of the architecture only sizes that are settings stand here; what a network is
made of is tested with it.
"""

import functools
from typing import Any, NamedTuple

import pytest

from scorebed.methods.gradient import SCHEDULES
from scorebed.runs.begin import NewRun, Request, plan
from scorebed.runs.config import to_values
from scorebed.runs.execution import job_for
from scorebed.runs.spending import Spending
from scorebed.tasks import make_task

LOCATION = ("location-finding", "location-finding-3d")
DYNAMICAL = ("pendulum", "cart-pole", "double-link")
TASKS = (*LOCATION, *DYNAMICAL, "gravimetry")
UPFRONT = ("score", "varmarg", "varpost")


@functools.cache
def task_of(name: str) -> Any:
    return make_task(name)


def planned(
    task: str, method: str, policies: int | None = None, *settings: str, budget: int | None = None
) -> NewRun:
    """The run of `scorebed train TASK --preset paper --method METHOD [--policies P]`."""
    number = [] if policies is None else [f"policies={policies}"]
    request = Request(
        task_name=task,
        task=task_of(task),
        preset="paper",
        method=method,
        policies=policies,
        overrides=[*number, *settings],
        spending=None if budget is None else Spending(budget=budget),
    )
    return plan(request)


def values_of(run: NewRun) -> dict[str, Any]:
    return to_values(run.config)


def nle_of(run: NewRun) -> int:
    """Of a repeat, as the method itself counts it."""
    return run.config.trained_by.nle(job_for(run.config, run.task))


# ---- the tables of budgets


class Budget(NamedTuple):
    """A table: its tasks and shared values, and its rows (P, K_U), (P, M), (P, K_J)."""

    tasks: tuple[str, ...]
    total: int
    T: int
    K_P: int
    upfront: dict[int, int]
    contrastive: dict[int, int]
    joint: dict[int, int]


BUDGETS = (
    Budget(
        tasks=("location-finding", "location-finding-3d"),
        total=6_144_000_000,
        T=30,
        K_P=10_000,
        upfront={1: 190_000, 5: 150_000},
        contrastive={1: 19, 5: 3},
        joint={1: 200_000, 5: 40_000},
    ),
    Budget(
        tasks=("pendulum", "cart-pole", "double-link"),
        total=10_240_000_000,
        T=50,
        K_P=500,
        upfront={1: 199_500, 50: 175_000},
        contrastive={1: 399, 50: 7},
        joint={1: 200_000, 50: 4_000},
    ),
    Budget(
        tasks=("gravimetry",),
        total=4_096_000_000,
        T=20,
        K_P=10_000,
        upfront={1: 190_000, 5: 150_000},
        contrastive={1: 19, 5: 3},
        joint={1: 200_000, 5: 40_000},
    ),
)
CELLS = [(budget, task) for budget in BUDGETS for task in budget.tasks]
each_table = pytest.mark.parametrize(("table", "task"), CELLS, ids=[task for _, task in CELLS])


@each_table
@pytest.mark.parametrize("method", ["varmarg", "varpost"])
def test_pretrained_densities_close_their_budget(table, task, method):
    assert task_of(task).horizon == table.T
    for P, K_U in table.upfront.items():
        run = planned(task, method, P)
        values = values_of(run)
        assert (values[method]["steps"], values[method]["batch"]) == (K_U, 1024)
        training = values["policy_training"]
        assert (training["steps"], training["batch"]) == (table.K_P, 1024)
        assert values["policies"] == P
        assert nle_of(run) == table.total


@each_table
def test_scores_close_their_budget(table, task):
    """A third of the steps for each of three scores where P = 50 policies share them."""
    for P, K_U in table.upfront.items():
        run = planned(task, "score", P)
        score, training = values_of(run)["score"], values_of(run)["policy_training"]
        networks = 3 if P == 50 else 1
        assert (score["seeds"], score["steps"], score["batch"]) == (networks, K_U // networks, 1024)
        assert (training["steps"], training["batch"]) == (table.K_P, 1024)
        left_over = {1: 0, 3: 1024 * 50}[networks]  # ⌊K_U/3⌋ three times is K_U − 1
        assert nle_of(run) == table.total - left_over


@pytest.mark.parametrize("task", DYNAMICAL)
def test_three_scores_share_three_policies_by_default(task):
    run = planned(task, "score")
    values = values_of(run)
    found = (values["policies"], values["score"]["seeds"], values["score"]["steps"])
    assert found == (3, 3, 66_166)
    assert nle_of(run) == 10_239_897_600
    assert nle_of(planned(task, "score", None, "score.steps=66167")) > 10_240_000_000
    assert values_of(planned(task, "score", 50))["score"]["steps"] == 58_333


@each_table
def test_pce_closes_its_budget(table, task):
    for P, M in table.contrastive.items():
        run = planned(task, "pce", P)
        values = values_of(run)
        training = values["policy_training"]
        assert (values["policies"], values["pce"]["inner"]) == (P, M)
        assert (training["steps"], training["batch"]) == (table.K_P, 1024)
        assert nle_of(run) == table.total
        assert nle_of(planned(task, "nmc", P)) == table.total


@pytest.mark.parametrize(
    ("task", "total"),
    [
        ("location-finding", 61_440_000_000),
        ("location-finding-3d", 61_440_000_000),
        ("gravimetry", 40_960_000_000),
    ],
)
def test_pce_star_is_one_setting_away_and_takes_ten_times_the_budget(task, total):
    run = planned(task, "pce", None, "pce.inner=199")
    assert values_of(run)["policies"] == 1
    assert nle_of(run) == total


@each_table
def test_the_joint_posterior_closes_its_budget_and_has_its_own_rate(table, task):
    for P, K_J in table.joint.items():
        run = planned(task, "jointvarpost", P)
        training = values_of(run)["policy_training"]
        assert (training["steps"], training["batch"]) == (K_J, 1024)
        assert nle_of(run) == table.total
        assert training["schedule"] == "cosine"
        assert (training["learning_rate"], training["final_rate"]) == (1e-5, 5e-6)
        # Over the steps of the row, not of another.
        rate = SCHEDULES["cosine"](run.config.trained_by.policy_training)
        assert float(rate(K_J // 2)) == pytest.approx(7.5e-6)
        assert float(rate(K_J)) == pytest.approx(5e-6)


@each_table
def test_a_run_without_a_number_of_policies_takes_the_row_of_the_default(table, task):
    """K_J = 200,000 for JointVarPost among them; --set policies=P is the same as --policies P."""
    for method in (*UPFRONT, "pce", "nmc", "jointvarpost", "iosmc", "mlmc"):
        if method == "iosmc" and task not in DYNAMICAL:
            continue  # its policy needs a density
        run = planned(task, method)
        P = 3 if method == "score" and task in DYNAMICAL else 1
        assert values_of(run) == values_of(planned(task, method, P)), method
    several = max(table.joint)
    by_setting = planned(task, "jointvarpost", None, f"policies={several}")
    assert values_of(by_setting) == values_of(planned(task, "jointvarpost", several))


@each_table
def test_the_paper_s_budget_buys_the_paper_s_sizes(table, task):
    """`--budget` finds the rows again: nothing is charged that the paper does not charge."""
    for method in (*UPFRONT, "pce", "jointvarpost"):
        for P in table.joint:
            bought = values_of(planned(task, method, P, budget=table.total))
            assert bought.pop("budget") == table.total
            row = values_of(planned(task, method, P))
            assert row.pop("budget") == 0
            assert bought == row, (method, P)


def test_four_repeats_do_not_change_what_one_costs():
    assert {values_of(planned(task, "score"))["repeats"] for task in TASKS} == {4}
    four, one = planned("pendulum", "pce"), planned("pendulum", "pce", None, "repeats=1")
    assert nle_of(four) == nle_of(one) == 10_240_000_000


# ---- IO-SMC² and MLMC


@pytest.mark.parametrize("task", DYNAMICAL)
def test_iosmc(task):
    """(K, N, M, R, S) = (25, 1024, 512, 3, 1), P = 1."""
    run = planned(task, "iosmc")
    values = values_of(run)
    sizes = [values["iosmc"][key] for key in ("trajectories", "particles", "moves")]
    assert (values["policies"], values["policy_training"]["steps"], *sizes) == (1, 25, 1024, 512, 3)
    bill = run.config.trained_by.bill(job_for(run.config, run.task), 25)
    assert (bill.S, bill.lower, bill.upper) == (1, 1_336_294_400, 53_427_776_000)
    assert nle_of(run) == 53_427_776_000


def test_mlmc():
    """N = 2000, M0 = 1, K_P = 50,000, τ = 1.1, levels clipped at 12."""
    values = values_of(planned("location-finding", "mlmc"))
    training = values["policy_training"]
    assert (training["batch"], training["steps"]) == (2000, 50_000)
    assert values["mlmc"] == {"base": 1, "levels": 12, "tau": 1.1}
    assert values["policies"] == 1


# ---- table "Policy training"

# iterations, batch size, schedule, first rate, decay rate, decay every, (β1, β2). Location finding
# has 20,000 iterations in that table and 10⁴ in that of budgets, which closes the budget. "exp
# decay" is a staircase in the authors' program.
EXPONENTIAL = (10_000, 1024, "staircase", 5e-5, 0.98, 1000, (0.8, 0.998))
CONSTANT = (500, 1024, "constant", 1e-4, None, None, (0.9, 0.999))
POLICY_TRAINING = {
    "location-finding": EXPONENTIAL,
    "location-finding-3d": EXPONENTIAL,
    "pendulum": CONSTANT,
    "cart-pole": CONSTANT,
    "double-link": CONSTANT,
    "gravimetry": EXPONENTIAL,
}


@pytest.mark.parametrize("task", POLICY_TRAINING)
@pytest.mark.parametrize("method", ["score", "varmarg", "varpost", "pce"])
def test_policy_training(task, method):
    training = values_of(planned(task, method))["policy_training"]
    row = POLICY_TRAINING[task]
    keys = ("steps", "batch", "schedule", "learning_rate", "decay_rate", "decay_every")
    assert tuple(training.get(key) for key in keys) == row[:-1]
    assert (training["beta1"], training["beta2"]) == row[-1]
    assert training["clip"] == 1.0
    assert (training["keep"], training["trajectory_clip"]) == ("last", 0.0)
    assert (training["patience"], training["halvings"], training["noise_rate"]) == (0, 0, 1.0)


def test_the_rates_of_the_staircase():
    run = planned("gravimetry", "pce")
    rate = SCHEDULES["staircase"](run.config.trained_by.policy_training)
    found = [float(rate(step)) for step in (0, 999, 1000, 9999)]
    assert found == pytest.approx([5e-5, 5e-5, 4.9e-5, 5e-5 * 0.98**9])


def test_the_other_readings_are_one_setting_away():
    longer = planned("location-finding", "score", None, "policy_training.steps=20000")
    assert nle_of(longer) == 6_144_000_000 + 10_000 * 1024 * 30
    smooth = planned("location-finding", "pce", None, "policy_training.schedule=exponential")
    training = smooth.config.trained_by.policy_training
    assert (training.decay_rate, training.decay_every) == (0.98, 1000)
    rate = SCHEDULES["exponential"](training)
    assert float(rate(500)) == pytest.approx(5e-5 * 0.98**0.5)


# ---- tables "Score network training" and "Score network architecture"

# batch size, peak rate, clipping norm, λ_y
SCORE_TRAINING = {
    "location-finding": (1024, 2e-4, 600.0, 30.0),
    "location-finding-3d": (1024, 2e-4, 600.0, 30.0),
    "pendulum": (1024, 2e-4, 5_000.0, 0.0125),
    "cart-pole": (1024, 2e-4, 600.0, 0.004),
    "double-link": (1024, 2e-4, 10_000.0, 0.02),
    "gravimetry": (1024, 2e-4, 5_000.0, 10_000.0),
}


@pytest.mark.parametrize("task", SCORE_TRAINING)
def test_score_training_and_architecture(task):
    score = values_of(planned(task, "score"))["score"]
    keys = ("batch", "learning_rate", "clip", "lambda_y")
    assert tuple(score[key] for key in keys) == SCORE_TRAINING[task]
    assert (score["warmup_share"], score["floor_rate"]) == (0.001, 1e-5)
    assert (score["weights"], score["bias_penalty"]) == ("none", 0.0)
    # The conservative network; width of the model, transformer blocks, attention heads.
    assert score["kind"] == "transformer"
    assert (score["width"], score["blocks"], score["heads"]) == (256, 4, 8)


# ---- policies and "Evaluation Bounds: Sample sizes"

POLICIES = dict.fromkeys(LOCATION, "dad") | dict.fromkeys(DYNAMICAL, "gru")
INNER = dict.fromkeys(TASKS, 1_000_000) | dict.fromkeys(
    ("location-finding", "gravimetry"), 5_000_000
)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("method", [*UPFRONT, "pce", "jointvarpost"])
def test_policies_and_sample_sizes(task, method):
    values = values_of(planned(task, method))
    assert values["policy"] == POLICIES.get(task, "attention")
    evaluation = values["evaluation"]
    assert (evaluation["outer"], evaluation["inner"]) == (2048, INNER[task])
    assert values["repeats"] == 4
    assert values["fresh_scores"] is False
