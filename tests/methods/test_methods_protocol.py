"""Every method keeps the protocol: settings are tables and back, refusals are sentences, costs are
those of the ledger.
"""

import json
from pathlib import Path

import equinox as eqx
import jax.random as jr
import pytest

import scorebed as sb
from scorebed.errors import InvalidValueError, ScorebedError
from scorebed.methods import METHODS
from scorebed.methods.base import Job, Method
from scorebed.methods.reading import method_values, own_table, read_method, table_settings
from scorebed.policies import make_policy
from scorebed.presets import PRESETS
from scorebed.presets.reader import preset_values
from scorebed.runs.execution import job_for
from scorebed.runs.user_task import read_task
from scorebed.samplers import make_sampler
from scorebed.tasks import TASKS, make_task
from user_files import EXAMPLES

BUILT_IN = sorted(METHODS.built_in)
# `predictive` is for other tasks: test_predictive_method.py.
TRAINED = [name for name in BUILT_IN if name not in ("random", "myopic", "predictive")]
TASK, KEY = make_task("linear-gaussian"), jr.key(0)
RUNS = Path(__file__).parents[1] / "fixtures" / "runs-v1"


def of_preset(name: str, *, preset: str = "quick") -> Method:
    return read_method(name, preset_values(preset, "linear-gaussian", TASK, method=name))


def job(policies: int = 1, **more) -> Job:
    return Job(
        task=TASK,
        sampler=make_sampler("paper", TASK),
        make_policy=lambda task, *, key: make_policy("gru", task, key=key),
        policies=policies,
        key=jr.key(0),
        **more,
    )


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("task_name", sorted(TASKS))
def test_settings_become_tables_and_tables_settings(task_name, preset):
    task = make_task(task_name)
    for name in BUILT_IN:
        values = preset_values(preset, task_name, task, method=name)
        method = read_method(name, values)
        assert type(method) is METHODS[name]
        tables = method_values(name, method)
        assert read_method(name, tables) == method
        keys = {table: set(keys) for table, keys in table_settings(name, values).items()}
        assert {table: set(part) for table, part in tables.items()} == keys
        # What a preset says is what the method has; the rest are its defaults.
        for table, part in tables.items():
            given = values.get(table, {})
            assert {key: part[key] for key in given} == given


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_setting_that_is_changed_in_its_table_is_changed_in_the_method(name):
    tables = method_values(name, of_preset(name))
    for table, keys in tables.items():
        for key, value in keys.items():
            if isinstance(value, int) and key in ("inner", "steps", "width", "moves", "base"):
                other = {**tables, table: {**keys, key: 2 * value}}
                assert method_values(name, read_method(name, other)) == other


# ---- refusals

SERVES = {
    "sensor_placement.py:SensorPlacement": {
        *("score", "jointscore", "pce", "varpost", "jointvarpost", "static", "random"),
    },
    "washout.py:Washout": {"score", "varpost", "jointvarpost", "random"},
}


@pytest.mark.parametrize("name", SERVES, ids=["nuisance", "implicit"])
def test_what_a_method_cannot_serve_is_refused_with_a_sentence(name):
    user = read_task(f"{EXAMPLES}/{name}").task
    served = set()
    for method in BUILT_IN:
        made = read_method(method, preset_values("quick", name, user, method=method))
        try:
            made.supports(user)
            served.add(method)
        except ScorebedError as error:
            message = str(error)
            assert "\n" not in message
            assert message.startswith(f"the method {method}, got {type(user).__name__}")
            assert "Fix: " in message
    assert served == SERVES[name]


def test_a_policy_without_a_density_is_refused_where_one_is_needed():
    policies = {
        name: eqx.filter_eval_shape(lambda key, name=name: make_policy(name, TASK, key=key), KEY)
        for name in ("static", "gru")
    }
    for name in TRAINED:
        of_preset(name).supports_policy(policies["gru"])
        if name != "iosmc":
            of_preset(name).supports_policy(policies["static"])
    with pytest.raises(InvalidValueError, match="one whose designs have a density"):
        of_preset("iosmc").supports_policy(policies["static"])


def test_a_score_that_does_not_learn_is_refused_by_the_joint_form():
    values = preset_values("quick", "pendulum", make_task("pendulum"), method="jointscore")
    values["score"] = {"kind": "laplace"}
    with pytest.raises(InvalidValueError, match=r"score\.kind, got laplace"):
        read_method("jointscore", values).supports(make_task("pendulum"))


# ---- costs and sizes


@pytest.mark.parametrize("name", json.loads((RUNS / "kinds.json").read_text())["kept"])
def test_the_cost_of_a_run_is_what_its_ledger_recorded(name):
    """The run was made by an earlier version: its costs have not changed since."""
    run = sb.load(RUNS / name)
    work = job_for(run.config, run.task)
    assert run.config.trained_by.nle(work) == run.record.nle
    stages = run.config.trained_by.upfront_nle(work), run.record.nle_stages
    assert stages[0] == sum(n for stage, n in stages[1].items() if not stage.startswith("policy"))


@pytest.mark.parametrize("name", TRAINED)
def test_the_whole_is_the_sum_of_its_stages_and_fits_into_a_budget(name):
    method, work = of_preset(name), job(policies=2, budget=0)
    parts = method.parts(work)
    counts = [count for _, count in work.groups(parts)]
    assert sum(counts) == 2
    if name == "mlmc":  # its costs are drawn step by step: fewer of them
        method = method.timed(9, 3)
    stages = [method.train(work, None, stage, count) for stage, count in work.groups(parts)]
    upfront = method.upfront(work, 0)
    assert (upfront is None) == (method.upfront_stem == "")
    total = sum(stage.nle_at_most() for stage in stages)
    assert method.nle(work) == total + parts * (upfront.nle_at_most() if upfront else 0)
    assert all(stage.steps == method.policy_settings.steps for stage in stages)
    budget = method.nle(work) // 2
    limited = job(policies=2, budget=budget)
    assert 0 < method.within(budget, limited).nle(limited) <= budget
    with pytest.raises(InvalidValueError, match="at least"):
        method.within(1, limited)


@pytest.mark.parametrize("name", TRAINED)
def test_steps_can_be_set_and_timed(name):
    method, work = of_preset(name), job()
    short = method.timed(9, 3)
    assert (short.policy_settings.steps, short.policy_settings.monitor_every) == (9, 3)
    upfront = short.upfront(work, 0)
    assert upfront is None or upfront.steps == 9
    longer = method.with_steps(work, 5 if upfront else None, 7)
    assert longer.policy_settings.steps == 7
    again = longer.upfront(work, 0)
    assert again is None or again.steps == 5


def test_what_trains_nothing_has_a_policy_and_costs_nothing():
    for name in ("random", "myopic"):
        method = of_preset(name)
        assert method.train(job(), None, "policy-0-0", 1) is None
        assert method.untrained(job()).sample_noise(3, key=jr.key(0)).shape[0] == 3
        assert (method.nle(job()), method.within(0, job())) == (0, method)


# ---- a method of one's own, in Python


class Idle(Method):
    """Neither trains nor has a policy."""


class Fixed(Method):
    """Costs what it costs, whatever the budget."""

    def nle(self, job):
        del job
        return 10


def test_a_method_that_says_too_little_is_told_so():
    with pytest.raises(InvalidValueError, match="write `train`, or `untrained`"):
        Idle().untrained(job())


def test_a_method_without_sizes_is_refused_below_its_cost():
    assert Fixed().within(10, job()) == Fixed()
    with pytest.raises(InvalidValueError, match="at least 10"):
        Fixed().within(9, job())


def test_the_table_of_a_method_from_a_file_is_its_name_in_small_letters():
    assert own_table("methods/mine.py:FewContrasts") == "fewcontrasts"
