"""Approximations of the marginal score ∇ log p(y_{1:T} | ξ_{1:T}), by the names that configurations
use.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import PRNGKeyArray

from scorebed.keys import named
from scorebed.registry import Registry
from scorebed.rollout import PILOT
from scorebed.scores.base import Score, ScoreKind
from scorebed.scores.conditional import ScorePair
from scorebed.scores.conservative import Transformer
from scorebed.scores.laplace import Laplace
from scorebed.scores.particles import Particles
from scorebed.scores.standardise import Standardiser, with_parameters
from scorebed.scores.transformer import TransformerDirect
from scorebed.tasks.base import Task
from scorebed.tasks.conditioned import condition_on
from scorebed.tasks.nuisance import needs_conditional_score

SomeKind = TypeVar("SomeKind", bound=ScoreKind)

SCORES: Registry[type[ScoreKind]] = Registry(
    "kind of score",
    {
        "particles": Particles,
        "laplace": Laplace,
        "transformer": Transformer,
        "transformer-direct": TransformerDirect,
    },
    made_by="a subclass of ScoreKind",
    accepts=lambda kind: isinstance(kind, type) and issubclass(kind, ScoreKind),
    about="""The kinds of score, by the names that `--score-kind` takes: each a class whose fields
    are its sizes. `register_score` adds one.

    Example:
        >>> kind = sb.SCORES["particles"](particles=2, cloud=2, width=8)
        >>> isinstance(kind, sb.ScoreKind)
        True
    """,
)


def register_score(name: str) -> Callable[[type[SomeKind]], type[SomeKind]]:
    """Add a kind of score of your own, for `--score-kind NAME` and in Python.

    Arguments:
        name: lower-case letters, digits and hyphens; not a built-in name.

    Returns:
        A decorator for a subclass of `ScoreKind`. It returns the class.

    Raises:
        InvalidValueError: if the name is malformed or built in, or the class is not a `ScoreKind`.

    Example:
        >>> @sb.register_score("my-score")
        ... class MyScore(sb.SCORES["particles"]):
        ...     width: int = 8
        >>> "my-score" in sb.SCORES
        True
    """
    return SCORES.register(name)


def score_kind(name: str, settings: Mapping[str, Any] | None = None) -> ScoreKind:
    """A kind of score by its name. Of the settings it takes those that are its fields: a mapping
    may hold those of other kinds too.
    """
    kind, given = SCORES.find(name), settings or {}
    names = [field.name for field in dataclasses.fields(kind)]
    return kind(**{field: given[field] for field in names if field in given})


def make_score(
    kind: ScoreKind, task: Task, standardise: Standardiser, *, key: PRNGKeyArray
) -> Score:
    """A fresh score of a kind; a pair where the first term of the EIG gradient has to be learned as
    well.
    """
    kind.supports(task)
    made, known = kind.make(task, standardise, key=key), needs_conditional_score(task)
    if known is None:
        return made
    draws = jax.vmap(lambda k: task.prior.sample(key=k))(jr.split(named(key, "parameters"), PILOT))
    with_psi = with_parameters(standardise, draws[:, jnp.asarray(known)])
    conditional = kind.make(condition_on(task, known), with_psi, key=named(key, "conditional"))
    return ScorePair(made, conditional, known)
