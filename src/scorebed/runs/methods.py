"""The methods by what they need: something learned upfront and shared among policies, or nothing;
training, or none.
"""

from typing import NamedTuple

import jax.random as jr

from scorebed.errors import require
from scorebed.runs.config import RunConfig
from scorebed.tasks.base import Task
from scorebed.tasks.nuisance import check_interest, has_nuisance, needs_conditional_score


class Learned(NamedTuple):
    """What a two-stage method learns before any policy: the name of its files, and its section of
    the configuration.
    """

    stem: str
    section: str

    def count(self, config: RunConfig) -> int:
        """How many of them a run has."""
        return config.score.seeds if self.section == "score" else 1


UPFRONT = {
    "score": Learned("score", "score"),
    "jointscore": Learned("score", "score"),
    "varmarg": Learned("marginal", "density"),
    "varpost": Learned("posterior", "density"),
}
BY_SCORE = ("score", "jointscore")
CONTRASTIVE = ("pce", "nmc", "static")
# Nothing is trained: designs are drawn, or found anew in every experiment.
UNTRAINED = ("random", "myopic")
# What can tell parameters of interest from a nuisance, and what needs no density.
WITH_NUISANCE = ("score", "jointscore", "pce", "varpost", "jointvarpost", "static", "random")
WITHOUT_DENSITY = ("score", "varpost", "jointvarpost", "random")


def require_method(method: str, task: Task) -> None:
    """Refuse a method that cannot work on a task."""
    name = type(task).__name__
    require(
        method in WITHOUT_DENSITY or task.has_density,
        f"--method {method}",
        got=f"{name}, a model without a density",
        expected=f"one of {', '.join(WITHOUT_DENSITY)}",
        fix="leave --method out.",
    )
    require(
        method in WITH_NUISANCE or not has_nuisance(task),
        f"--method {method}",
        got=f"{name}, which has nuisance parameters",
        expected=f"one of {', '.join(WITH_NUISANCE)}",
        fix="leave --method out.",
    )


def require_fit(config: RunConfig, task: Task) -> None:
    """Refuse settings, or a prior, that cannot work on a task."""
    require_method(config.method, task)
    check_interest(task, key=jr.key(0))
    kind, name = config.score.kind, type(task).__name__
    alone = (
        "iosmc trains one policy at a time"
        if config.method == "iosmc"
        else f"{name} has no density to judge by"
    )
    require(
        config.policy_training.halvings == 0 or (config.method != "iosmc" and task.has_density),
        "policy_training.halvings",
        got=f"{config.policy_training.halvings}, but {alone}",
        expected="0",
        fix="leave it out.",
    )
    if config.method not in BY_SCORE:
        return
    require(
        kind != "laplace" or needs_conditional_score(task) is None,
        "score.kind",
        got=f"laplace, for {name}, which needs two scores",
        expected="a kind that is trained",
        fix="leave it out.",
    )
    if task.has_density:
        return
    require(
        kind not in ("particles", "laplace"),
        "score.kind",
        got=f"{kind}, for {name}, which has no density",
        expected="transformer or transformer-direct",
        fix="leave it out.",
    )
    require(
        task.constraint is None,
        f"the designs of {name}",
        got="a constraint",
        expected="none: the model has no density",
        fix="leave `constraint` out, write `log_prob`, or use --method varpost.",
    )
