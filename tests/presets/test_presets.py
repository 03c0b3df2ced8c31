"""Presets: the values are those from before they were TOML, every task has every preset and method,
and the paper's rows cost what the paper says.
"""

import functools
import itertools
import json
import tomllib
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from preset_tasks import ALL, LIBRARY, Plain

from scorebed.errors import UnknownNameError
from scorebed.nle import PCE, JointVarPost, Pretrained
from scorebed.presets import PRESETS
from scorebed.presets.budgets import TABLES
from scorebed.presets.reader import policy_for, preset_values
from scorebed.presets.traits import TRAITS
from scorebed.tasks import make_task
from scorebed.tasks.base import Task

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
POLICIES = ("dad", "gru", "attention", "modes", "plan", "static")

# ---- the schema: the keys of every table of a configuration

_TRAINING = {"steps", "batch", "learning_rate", "floor_rate", "warmup_share", "clip", "ema"}
_POSTERIOR = {"width", "blocks", "heads", "components", "frequency_scale"}
KINDS = {
    "particles": {"particles", "cloud", "width"},
    "laplace": {"particles", "cloud", "iterations"},
    "transformer": {"width", "blocks", "heads"},
    "transformer-direct": {"width", "blocks", "heads"},
}
SCORE_TRAINING = _TRAINING | {"lambda_y", "weights", "bias_penalty"}
SCHEMA = {
    "policy_training": set(
        "steps batch learning_rate schedule decay_rate decay_every final_rate beta1 beta2 clip "
        "trajectory_clip noise_rate ema keep monitor_every monitor monitor_inner halvings "
        "patience".split()
    ),
    "score": {"kind", "seeds"} | SCORE_TRAINING,
    "jointscore": {"score_rate"},
    "pce": {"inner"},
    "nmc": {"inner"},
    "static": {"inner"},
    "mlmc": {"base", "levels", "tau"},
    "varmarg": {"width", "layers", "depth", "bins"} | _TRAINING,
    "varpost": _POSTERIOR | _TRAINING,
    "jointvarpost": _POSTERIOR | _TRAINING - {"steps", "batch", "ema"},
    "posterior": _POSTERIOR | _TRAINING,
    "iosmc": {"trajectories", "particles", "moves", "tempering", "penalty", "inner"},
    "evaluation": {"outer", "inner", "select_outer", "select_inner", "references"},
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
    "score": KINDS,
    "policy_training": {
        "contrastive": {"monitor_inner"},
        "importance": {"monitor_inner"},
        "exponential": {"decay_rate", "decay_every"},
    },
}


def tables_of(name: str) -> set[str]:
    return SCHEMA[name] | {key for keys in CHOICES.get(name, {}).values() for key in keys}


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
        yield policy, {"policy": policy, "repeats": 1} | _old_table("run", run) | tables


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


WITHOUT_DENSITY = ("score", "varpost", "jointvarpost", "random")  # the methods that need none


@pytest.mark.parametrize("name", ALL)
def test_values_are_those_from_before_they_were_toml(name):
    task = task_of(name)
    for preset, method in itertools.product(
        PRESETS, METHODS if task.has_density else WITHOUT_DENSITY
    ):
        for policy, old in before(name, preset, method):
            new = preset_values(preset, name, task, method=method, policy=policy)
            case = (preset, method, policy)
            tables = used(method, old["score"]["kind"], task)
            assert new.keys() == {"task", "method", "preset"} | RUN | tables.keys(), case
            assert (new["task"], new["method"], new["preset"]) == (name, method, preset)
            assert {key: new[key] for key in RUN} == {key: old[key] for key in RUN}, case
            for table, keys in tables.items():
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
