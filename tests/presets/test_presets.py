"""Presets: the values are those from before they were TOML, every task has every preset and method,
and the paper's rows cost what the paper says.
"""

import functools
import itertools
import json
import re
import tomllib
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
import pytest
from preset_tasks import ALL, LIBRARY, Plain

from scorebed.errors import UnknownNameError
from scorebed.nle import PCE, Cost, JointVarPost, Pretrained
from scorebed.presets import BENCH_PRESET, DEFAULT_METHOD, DEFAULT_PRESET, PRESETS
from scorebed.presets.budgets import TABLES
from scorebed.presets.reader import default_method, policy_for, preset_values
from scorebed.presets.traits import TRAITS
from scorebed.tasks import make_task
from scorebed.tasks.base import IID, Task
from scorebed.tasks.declare import categories, parameters, ranges
from scorebed.tasks.discrete import Discrete

METHODS = (
    "score",
    "jointscore",
    "pce",
    "nmc",
    "mlmc",
    "varmarg",
    "varpost",
    "jointvarpost",
    "iosmc",
    "static",
    "random",
    "myopic",
)
OLD_POLICIES = ("dad", "gru", "attention", "modes", "plan", "static", "random", "myopic")
POLICIES = (*OLD_POLICIES, "lookahead", "receding-horizon", "belief")

# ---- the schema: the keys of every table of a configuration

_TRAINING = {"steps", "batch", "learning_rate", "floor_rate", "warmup_share", "clip", "ema"}
_POSTERIOR = {"width", "blocks", "heads", "components", "frequency_scale"}
KINDS = {
    "particles": {"particles", "cloud", "width"},
    "laplace": {"particles", "cloud", "iterations"},
    "transformer": {"width", "blocks", "heads"},
    "transformer-direct": {"width", "blocks", "heads"},
}
# Settings of a kind that presets may leave at their defaults.
LEFT_OUT = {"transformer": {"by_noise"}}
SCORE_TRAINING = _TRAINING | {"lambda_y", "weights", "bias_penalty"}
_POLICY_TRAINING = {
    "steps",
    "batch",
    "learning_rate",
    "schedule",
    "decay_rate",
    "decay_every",
    "final_rate",
    "beta1",
    "beta2",
    "clip",
    "trajectory_clip",
    "noise_rate",
    "ema",
    "keep",
    "monitor_every",
    "monitor",
    "monitor_inner",
    "halvings",
    "patience",
}
SCHEMA = {
    "policy_training": _POLICY_TRAINING,
    "score": {"kind", "seeds"} | SCORE_TRAINING,
    "jointscore": {"score_rate"},
    "predictive": {"particles", "width", "follow"} | _TRAINING,
    "pce": {"inner"},
    "nmc": {"inner"},
    "static": {"inner"},
    "mlmc": {"base", "levels", "tau"},
    "varmarg": {"width", "layers", "depth", "bins"} | _TRAINING,
    "varpost": _POSTERIOR | _TRAINING,
    "jointvarpost": _POSTERIOR | _TRAINING - {"steps", "batch", "ema"},
    "posterior": _POSTERIOR | _TRAINING,
    "iosmc": {"trajectories", "particles", "moves", "tempering", "penalty", "inner"},
    "evaluation": {
        "outer",
        "inner",
        "select_outer",
        "select_inner",
        "tight_outer",
        "greedy",
        "references",
    },
    "random": set(),
    "myopic": set(),
}
RUN = {"policy", "policies", "repeats"}
USES = {
    "score": {"policy_training", "score"},
    "jointscore": {"policy_training", "score", "jointscore"},
    **{
        method: {"policy_training", method}
        for method in METHODS
        if method not in ("score", "jointscore", "random", "myopic")
    },
    "random": set(),
    "myopic": set(),
}
CHOICES = {  # tables that hold what one choice has; the choice is a setting of the table above
    "score": {kind: keys | LEFT_OUT.get(kind, set()) for kind, keys in KINDS.items()},
    "policy_training": {
        "contrastive": {"monitor_inner"},
        "importance": {"monitor_inner"},
        "exponential": {"decay_rate", "decay_every"},
        "staircase": {"decay_rate", "decay_every"},
    },
}


# ---- the values from before

BEFORE = json.loads((Path(__file__).parent / "values_before_toml.json").read_text())

# What a setting was if it was not given.
OLD_DEFAULTS = {
    "score": {
        "floor_rate": 1e-5,
        "warmup_share": 0.001,
        "lambda_y": "auto",
        "weights": "none",
        "bias_penalty": 0.0,
        "ema": 0.0,
        "seeds": 1,
        "particles": 8,
        "cloud": 8,
        "iterations": 16,
        "blocks": 4,
        "heads": 8,
        "joint_rate": 3e-4,
    },
    "density": {
        "depth": 2,
        "bins": 8,
        "heads": 8,
        "components": 10,
        "sigma": 10.0,
        "learning_rate": 1e-3,
        "floor_rate": 1e-6,
        "warmup_share": 0.001,
        "clip": 10.0,
        "ema": 0.0,
    },
    "policy_training": {
        "decay_rate": 0.98,
        "decay_every": 1000,
        "final_rate": 0.0,
        "beta1": 0.9,
        "beta2": 0.999,
        "clip": 1.0,
        "inner": 15,
        "base": 1,
        "levels": 12,
        "tau": 1.1,
        "limit": 0.0,
        "noise_rate": 1.0,
        "ema": 0.0,
        "keep": "best",
        "monitor": "contrastive",
        "halvings": 0,
        "patience": 0,
    },
    "iosmc": {"moves": 3, "tempering": 1.0, "penalty": 0.0},
    "evaluation": {"references": True},
}
# Where a setting was, and what it was called, where that is not what it is now.
OLD_TABLES = {
    **dict.fromkeys(("varmarg", "varpost", "jointvarpost", "posterior"), "density"),
    **dict.fromkeys(("pce", "nmc", "static", "mlmc"), "policy_training"),
    "jointscore": "score",
}
_OF_POSTERIORS = {"blocks": "layers", "frequency_scale": "sigma"}
OLD_KEYS = {
    "policy_training": {"trajectory_clip": "limit"},
    "jointscore": {"score_rate": "joint_rate"},
    **dict.fromkeys(("varpost", "jointvarpost", "posterior"), _OF_POSTERIORS),
}
OLD_WEIGHTS = {"own": "score"}


def old_place(table: str, key: str) -> tuple[str, str]:
    """The old table and name of a setting."""
    if (table, key) == ("iosmc", "inner"):
        return "policy_training", "inner"
    return OLD_TABLES.get(table, table), OLD_KEYS.get(table, {}).get(key, key)


def before(task: str, preset: str, method: str) -> Iterator[tuple[str | None, dict[str, Any]]]:
    """The old values for each policy, complete with the defaults of their time."""
    line = BEFORE["profiles"][BEFORE["tasks"][task]]
    score, density, iosmc, evaluation, runs, trainings = BEFORE["settings"][
        line[BEFORE["presets and methods"].index(f"{preset} {method}")]
    ]
    for policy, run, training in zip(BEFORE["policies"], runs, trainings, strict=True):
        numbers = {
            "score": score,
            "density": density,
            "iosmc": iosmc,
            "evaluation": evaluation,
            "policy_training": training,
        }
        tables = {
            name: OLD_DEFAULTS[name] | _old_table(name, number) for name, number in numbers.items()
        }
        old = {"policy": policy, "repeats": 1} | _old_table("run", run) | tables
        yield policy, corrected(old, method) if preset == "paper" else old


def corrected(old: dict[str, Any], method: str) -> dict[str, Any]:
    """The old values of preset paper with what was not the paper's put right."""
    training = dict(old["policy_training"])
    if training["schedule"] == "exponential":
        training["schedule"] = "staircase"
    if method == "jointvarpost":
        training["steps"] = 200_000
    if method == "mlmc":
        training |= {"steps": 50_000, "batch": 2000}
    alone = method not in ("score", "jointscore")  # three scores share three policies
    return old | {"policy_training": training, "policies": 1 if alone else old["policies"]}


def _old_table(name: str, number: int) -> dict[str, Any]:
    pairs = zip(BEFORE["keys"][name], BEFORE["tables"][name][number], strict=True)
    return {key: value for key, value in pairs if value is not None}


def used(method: str, kind: str, task: Task) -> dict[str, set[str]]:
    """The settings that a run uses, by table."""
    names = USES[method] | {"evaluation"} | (set() if task.has_density else {"posterior"})
    tables = {name: SCHEMA[name] for name in names}
    if "score" in tables:
        training = SCORE_TRAINING if kind != "laplace" else set()
        tables["score"] = {"kind", "seeds"} | KINDS[kind] | training
    return tables


@functools.cache
def task_of(name: str) -> Task:
    return ALL[name]()


# What was changed since, on purpose: settings by preset and table (docs/reproduction.md).
_FREQUENCIES = {(table, "frequency_scale") for table in ("varpost", "jointvarpost", "posterior")}
_ENCODER = {
    (table, key)
    for table in ("varpost", "jointvarpost", "posterior")
    for key in ("blocks", "heads", "clip", "components")
}
_TIGHT = {("evaluation", "tight_outer"), ("evaluation", "greedy")}
SINCE = {
    "quick": _FREQUENCIES | _TIGHT,
    "laptop": _FREQUENCIES | _TIGHT,
    "paper": _FREQUENCIES | _ENCODER | _TIGHT | {("score", "ema"), ("score", "by_noise")},
}
# A NumPyro model is the user's, as one by hand is: smaller bounds, none of the paper's clipping.
_BOUNDS = {("evaluation", "inner"), ("evaluation", "select_inner")}
NUMPYRO = _BOUNDS | {("policy_training", "monitor_inner")}
NUMPYRO |= {("score", "clip"), ("score", "lambda_y"), ("score", "by_noise")}
# Contrastive estimates of many parameters are at their ceiling.
MANY = {("policy_training", "monitor"), ("policy_training", "monitor_inner")}
WITHOUT_DENSITY = ("score", "varpost", "jointvarpost", "random")  # the methods that need none


def _without(table: dict[str, Any], keys: set[str]) -> dict[str, Any]:
    return {key: value for key, value in table.items() if key not in keys}


@pytest.mark.parametrize("name", ALL)
def test_values_are_those_from_before_they_were_toml(name):
    task = task_of(name)
    for preset, method in itertools.product(
        PRESETS, METHODS if task.has_density else WITHOUT_DENSITY
    ):
        for policy, old in before(name, preset, method):
            new = preset_values(preset, name, task, method=method, policy=policy)
            if policy is None and new["policy"] not in OLD_POLICIES:
                continue  # a policy that there was not yet
            case = (preset, method, policy)
            tables = used(method, old["score"]["kind"], task)
            assert new.keys() == {"task", "method", "preset"} | RUN | tables.keys(), case
            assert (new["task"], new["method"], new["preset"]) == (name, method, preset)
            assert {key: new[key] for key in RUN} == {key: old[key] for key in RUN}, case
            for table, every in tables.items():
                changed = SINCE[preset] | (NUMPYRO if name.startswith("numpyro") else set())
                changed |= MANY if name == "OscillatorOfManyParameters" else set()
                since = {key for place, key in changed if place == table}
                keys, new[table] = every - since, _without(new[table], since)
                assert new[table].keys() <= keys, case
                expected = {}
                for key in keys:
                    place, old_key = old_place(table, key)
                    value = old[place][old_key]
                    expected[key] = OLD_WEIGHTS.get(value, value) if key == "weights" else value
                    if key not in new[table]:  # then the code's default, which has not changed
                        assert value == OLD_DEFAULTS[place][old_key], (*case, table, key)
                        del expected[key]
                assert new[table] == expected, (*case, table)


@pytest.mark.parametrize("name", ["Plain", "numpyro"])
def test_nothing_is_trained_for_a_users_model_that_greed_serves_unless_it_is_asked_for(name):
    task = task_of(name)
    assert default_method("quick", task) == default_method("laptop", task, policy="lookahead")
    assert policy_for("quick", task, method=default_method("quick", task)) == "lookahead"
    assert {default_method("quick", task), default_method("paper", task)} == {"pce", "score"}
    for asked in ({"policy": "dad"}, {"trained": True}):
        assert default_method("quick", task, **asked) == "score"
    assert policy_for("quick", task, method="score") == "dad"


class Answers(IID, Discrete):
    horizon = 3
    prior = parameters({"line": dist.Normal(0.0, 1.0)})
    designs = ranges({"level": (-3.0, 3.0)})
    outcomes = categories("above", ("no", "yes"))

    def probabilities(self, theta, state, xi):
        del state
        yes = jax.nn.sigmoid(xi[0] - theta[0])
        return jnp.stack([1 - yes, yes])


class Many(Plain):
    prior = parameters({f"p{i}": dist.Normal(0.0, 1.0) for i in range(11)})


@pytest.mark.parametrize(("task", "monitor"), [(Many(), "importance"), (Plain(), "contrastive")])
def test_policies_for_many_parameters_are_not_watched_by_a_bound_that_saturates(task, monitor):
    values = preset_values("quick", "model", task, method="score")
    assert values["policy_training"]["monitor"] == monitor


def test_answers_to_a_users_model_need_no_predictive_unless_it_is_asked_for():
    task = Answers()
    assert default_method("quick", task) == default_method("laptop", task) == "pce"
    assert policy_for("quick", task, method="pce") == "lookahead"
    for asked in ({"policy": "belief"}, {"trained": True}):
        assert default_method("quick", task, **asked) == "predictive"


@pytest.mark.parametrize(
    "name", ["Constrained", "Priced", "Nuisance", "pendulum", "controlled system"]
)
def test_a_score_is_learned_where_greed_does_not_serve(name):
    assert default_method("quick", task_of(name)) == "score"


# ---- the files

FILES = {
    path.name.removesuffix(".toml"): tomllib.loads(path.read_text("utf-8"))
    for path in resources.files("scorebed.presets").iterdir()
    if path.name.endswith(".toml") and path.name != "published.toml"  # results, not settings
}
PARTS = {"every", "two-cores", *PRESETS}


# Headings of the files themselves.
GENERAL = ("base", "many_modes", "presets", "methods", "spend_all", "default", "bench")


def misspelt(file: dict[str, Any]) -> Iterator[str]:
    """The headings and keys of a file that mean nothing."""
    for name, part in file.items():
        if name in PARTS:
            yield from _in_preset(name, part)
        elif name in TRAITS:
            for preset, tables in part.items():
                yield from _in_preset(preset, tables) if preset in PARTS else [f"{name}.{preset}"]
        elif name not in GENERAL:
            yield name


def _in_preset(preset: str, tables: dict[str, Any]) -> Iterator[str]:
    for name, table in tables.items():
        if name == "with":
            for policy, changes in table.items():
                found = () if policy in POLICIES else (policy,)
                yield from (*found, *_in_preset(f"{preset}.with.{policy}", changes))
        elif name in SCHEMA:
            yield from _in_table(f"{preset}.{name}", name, table)
        elif name not in RUN | {"tables", "method"}:
            yield f"{preset}.{name}"


def _in_table(where: str, name: str, table: dict[str, Any]) -> Iterator[str]:
    choices = CHOICES.get(name, {})
    for key, value in table.items():
        if re.fullmatch(r"P[1-9][0-9]*", key) or (key in SCHEMA and isinstance(value, dict)):
            yield from _in_table(f"{where}.{key}", key if key in SCHEMA else name, value)
        elif key in choices:
            known = choices[key] | {"without"}
            yield from (f"{where}.{key}.{each}" for each in value if each not in known)
        elif key not in SCHEMA[name] | RUN | {"like", "without"} or isinstance(value, dict):
            yield f"{where}.{key}"


@pytest.mark.parametrize("name", FILES)
def test_every_key_means_something(name):
    assert list(misspelt(FILES[name])) == []


def test_the_check_sees_a_misspelt_key():
    text = """
    [quick.score]
    stpes = 1
    laplace = { width = 1 }
    [quick.scoer]
    [paper.pce.P5]
    iner = 3
    [paper.jointvarpost.P5]
    policy_training.step = 3
    [constrained.lapto.pce]
    [laptop.with.pln]
    [smooth.quick]
    """
    assert list(misspelt(tomllib.loads(text))) == [
        "quick.score.stpes",
        "quick.score.laplace.width",
        "quick.scoer",
        "paper.pce.P5.iner",
        "paper.jointvarpost.P5.policy_training.step",
        "constrained.lapto",
        "pln",
        "smooth",
    ]


def test_files_build_on_files_and_every_task_has_its_own():
    for name, file in FILES.items():
        assert file.get("base", "general") in FILES, name
        assert file.get("many_modes", "general") in FILES, name
    assert LIBRARY.keys() <= FILES.keys()
    for name in LIBRARY:
        assert make_task(name).preset_file == f"{name.removesuffix('-3d')}.toml"


def test_the_methods_of_the_files_use_the_tables_of_the_schema():
    tables = {name: set(tables) for name, tables in FILES["general"]["methods"].items()}
    other = tables.pop("other")
    assert other == {"policy_training"}
    others = {"random": {"random"}, "myopic": {"myopic"}}
    assert tables == USES | others | {"predictive": {"policy_training", "predictive"}}


# ---- every task, preset and method

# What has no default in the code: without it a configuration is incomplete.
REQUIRED = {
    "policy_training": {
        "steps",
        "batch",
        "learning_rate",
        "schedule",
        "monitor_every",
        "monitor_inner",
    },
    "score": {"kind", "steps", "batch", "learning_rate", "clip"},
    "varmarg": {"width", "layers", "steps", "batch"},
    "varpost": {"width", "blocks", "steps", "batch"},
    "posterior": {"width", "blocks", "steps", "batch"},
    "jointvarpost": {"width", "blocks"},
    "iosmc": {"trajectories", "particles", "inner"},
    "evaluation": {"outer", "inner", "select_outer", "select_inner"},
    **{method: {"inner"} for method in ("pce", "nmc", "static")},
}


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("name", LIBRARY)
def test_every_task_has_every_preset_for_every_method(name, preset):
    task = task_of(name)
    for method in METHODS:
        values = preset_values(preset, name, task, method=method)
        assert USES[method] | {"evaluation"} <= values.keys()
        for table in USES[method] | {"evaluation"}:
            kind = values[table].get("kind")
            needed = {"kind"} if kind == "laplace" else REQUIRED.get(table, set())
            assert needed | KINDS.get(kind, set()) <= values[table].keys(), (method, table)


def test_values_may_be_changed_without_changing_the_preset():
    task = task_of("pendulum")
    values = preset_values("quick", "pendulum", task, method="score")
    values["score"]["steps"] = values["policy_training"]["steps"] = 1
    again = preset_values("quick", "pendulum", task, method="score")
    assert (again["score"]["steps"], again["policy_training"]["steps"]) == (3000, 150)


def test_an_unknown_preset_is_answered_with_the_nearest():
    for ask in (
        lambda: preset_values("lapto", "pendulum", task_of("pendulum"), method="score"),
        lambda: policy_for("lapto", task_of("pendulum")),
    ):
        with pytest.raises(UnknownNameError, match="did you mean 'laptop'"):
            ask()


@pytest.mark.parametrize("preset", PRESETS)
def test_a_method_that_no_file_names_trains_a_policy(preset):
    values = preset_values(preset, "x", task_of("pendulum"), method="mine.py:Mine")
    contrastive = preset_values(preset, "x", task_of("pendulum"), method="pce")
    del contrastive["pce"]
    assert values == contrastive | {"method": "mine.py:Mine"}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("preset", PRESETS)
def test_another_kind_of_score_has_its_own_settings(preset, kind):
    for name in ("location-finding", "pendulum", "Memory", "Simulator"):
        score = preset_values(preset, name, task_of(name), method="score", score_kind=kind)["score"]
        assert score["kind"] == kind
        assert KINDS[kind] <= score.keys()
        others = set().union(*KINDS.values()) - KINDS[kind]
        assert not others & score.keys()
        assert ("steps" in score) == (kind != "laplace")


def test_a_kind_of_score_that_no_file_names_is_trained():
    task = task_of("location-finding")
    score = preset_values("laptop", "x", task, method="score", score_kind="k.py:K")["score"]
    assert score.keys() == {"kind", "seeds"} | SCORE_TRAINING - {"bias_penalty"}


def test_a_task_of_a_users_own_may_say_that_it_has_few_modes():
    class FewModes(Plain):
        few_modes = True

    values = preset_values("laptop", "x", FewModes(), method="score")
    assert (values["policy"], values["score"]["kind"]) == ("lookahead", "laplace")
    assert values["policy_training"]["monitor"] == "importance"
    assert preset_values("laptop", "x", Plain(), method="score")["policy"] == "dad"


def test_a_task_may_ask_for_the_sizes_of_another():
    class LikeGravimetry(Plain):
        preset_file = "gravimetry.toml"

    class LikeNothing(Plain):
        preset_file = "gravimetri.toml"

    assert policy_for("paper", LikeGravimetry()) == "attention"
    with pytest.raises(UnknownNameError, match="did you mean 'gravimetry'"):
        policy_for("paper", LikeNothing())


# ---- policies


@pytest.mark.parametrize("name", ALL)
def test_the_policy_of_a_preset_is_that_of_its_values(name):
    task = task_of(name)
    for preset, method in itertools.product(PRESETS, METHODS):
        values = preset_values(preset, name, task, method=method)
        assert policy_for(preset, task, method=method) == values["policy"]
    assert policy_for("quick", task) == policy_for("paper", task)


def test_the_policies_that_all_methods_can_share_are_the_papers():
    found = {name: policy_for("quick", task_of(name)) for name in LIBRARY}
    assert found == {
        "location-finding": "dad",
        "location-finding-3d": "dad",
        "pendulum": "gru",
        "cart-pole": "gru",
        "double-link": "gru",
        "gravimetry": "attention",
        "linear-gaussian": "dad",
    }


# ---- the paper's rows

PAPER = {
    "location": ("location-finding", "location-finding-3d"),
    "dynamical": ("pendulum", "cart-pole", "double-link"),
    "gravimetry": ("gravimetry",),
}


def cost_of(values: dict[str, Any], T: int) -> Cost:
    training, method = values["policy_training"], values["method"]
    shared = {"T": T, "P": values["policies"]}
    policy = {"K_P": training["steps"], "N": training["batch"]}
    if method == "jointvarpost":
        return JointVarPost(**shared, K_J=training["steps"], B_J=training["batch"])
    if method == "pce":
        return PCE(**shared, **policy, M=values["pce"]["inner"])
    learned = values[method]
    networks = learned.get("seeds", 1)
    K_U = networks * learned["steps"]
    return Pretrained(**shared, **policy, K_U=K_U, B_U=learned["batch"], networks=networks)


@pytest.mark.parametrize(
    ("table", "name"), [(table, name) for table, names in PAPER.items() for name in names]
)
def test_the_rows_of_the_paper_are_reached_by_the_number_of_policies(table, name):
    task, reached = task_of(name), set()
    rows = [(method, row) for row in TABLES[table].rows for method in row.methods]
    for method, row in rows:
        values = preset_values("paper", name, task, method=method, policies=row.cost.P)
        cost = cost_of(values, task.horizon)
        assert cost.nle <= TABLES[table].budget
        same = getattr(cost, "networks", 1) == getattr(row.cost, "networks", 1)
        if same and cost.nle == row.cost.nle:
            assert values["policies"] == row.cost.P
            reached.add((method, row.cost.P))
    methods = ("score", "varmarg", "varpost", "pce", "jointvarpost")
    expected = set(itertools.product(methods, (1, 50 if table == "dynamical" else 5)))
    if table == "dynamical":
        expected.add(("score", 3))  # three policies on three scores
    assert reached == expected


def test_a_number_of_policies_without_a_row_leaves_the_preset_as_it_is():
    for name, method in itertools.product(LIBRARY, METHODS):
        values = preset_values("paper", name, task_of(name), method=method)
        assert values | {"policies": 7} == preset_values(
            "paper", name, task_of(name), method=method, policies=7
        )


def test_the_defaults_are_a_preset_and_a_method():
    assert {DEFAULT_PRESET, BENCH_PRESET} <= set(PRESETS)
    assert DEFAULT_METHOD in METHODS
