"""Approximations of the marginal score ∇ log p(y_{1:T} | ξ_{1:T}), by the names that configurations
know.
"""

from collections.abc import Mapping
from typing import Protocol

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import PRNGKeyArray

from scorebed.errors import UnknownNameError, require
from scorebed.keys import named
from scorebed.scores.base import Score
from scorebed.scores.conditional import ScorePair
from scorebed.scores.conservative import ConservativeScore
from scorebed.scores.laplace import LaplaceScore
from scorebed.scores.particles import LikelihoodParticles
from scorebed.scores.standardise import PILOT, Standardiser, with_parameters
from scorebed.scores.transformer import TransformerScore
from scorebed.tasks.base import Task
from scorebed.tasks.conditioned import condition_on
from scorebed.tasks.nuisance import needs_conditional_score


class ScoreConstructor(Protocol):
    """A fresh score for a task; of the sizes given, it takes those that it knows."""

    def __call__(
        self, task: Task, standardise: Standardiser, sizes: Mapping[str, int], *, key: PRNGKeyArray
    ) -> Score: ...


def _particles(
    task: Task, standardise: Standardiser, sizes: Mapping[str, int], *, key: PRNGKeyArray
) -> Score:
    require(
        task.has_density,
        "likelihood particles",
        got=f"{type(task).__name__}, a model without a density",
        expected="one with `log_prob`",
        fix="use score.kind=transformer-direct.",
    )
    taken = {name: sizes[name] for name in ("particles", "cloud", "width")}
    return LikelihoodParticles(task, standardise, **taken, key=key)


def _direct(
    task: Task, standardise: Standardiser, sizes: Mapping[str, int], *, key: PRNGKeyArray
) -> TransformerScore:
    # Sliced score matching differentiates the network in its inputs: features of a tenth of their
    # spread would be noise to it.
    sigma = 10.0 if task.has_density else 0.1
    return TransformerScore(
        task,
        standardise,
        width=sizes["width"],
        blocks=sizes["blocks"],
        heads=sizes["heads"],
        sigma=sigma,
        key=key,
    )


def _conservative(
    task: Task, standardise: Standardiser, sizes: Mapping[str, int], *, key: PRNGKeyArray
) -> Score:
    network = _direct(task, standardise, sizes, key=named(key, "network"))
    return ConservativeScore(network, key=named(key, "projection"))


def _laplace(
    task: Task, standardise: Standardiser, sizes: Mapping[str, int], *, key: PRNGKeyArray
) -> Score:
    del standardise, key
    return LaplaceScore(
        task, particles=sizes["particles"], cloud=sizes["cloud"], iterations=sizes["iterations"]
    )


SCORES: dict[str, ScoreConstructor] = {
    "particles": _particles,
    "laplace": _laplace,
    "transformer": _conservative,
    "transformer-direct": _direct,
}


def make_score(
    kind: str, task: Task, standardise: Standardiser, sizes: Mapping[str, int], *, key: PRNGKeyArray
) -> Score:
    """A fresh score of a kind; two of them where the first term of the EIG gradient has to be
    learned as well.
    """
    if kind not in SCORES:
        raise UnknownNameError("kind of score", kind, SCORES)
    made, known = SCORES[kind](task, standardise, sizes, key=key), needs_conditional_score(task)
    if known is None:
        return made
    require(
        kind != "laplace",
        f"the scores of {type(task).__name__}",
        got="laplace",
        expected="networks that can be told ψ",
        fix="use score.kind=particles.",
    )
    draws = jax.vmap(lambda k: task.prior.sample(key=k))(jr.split(named(key, "parameters"), PILOT))
    told = with_parameters(standardise, draws[:, jnp.asarray(known)])
    conditional = SCORES[kind](
        condition_on(task, known), told, sizes, key=named(key, "conditional")
    )
    return ScorePair(made, conditional, known)
