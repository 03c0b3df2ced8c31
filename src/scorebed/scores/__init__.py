"""Approximations of the marginal score ∇ log p(y_{1:T} | ξ_{1:T}), by the names that configurations know."""

from collections.abc import Mapping
from typing import Protocol

from jaxtyping import PRNGKeyArray

from scorebed.errors import UnknownNameError
from scorebed.keys import named
from scorebed.scores.base import Score
from scorebed.scores.conservative import ConservativeScore
from scorebed.scores.particles import LikelihoodParticles
from scorebed.scores.standardise import Standardiser
from scorebed.scores.transformer import TransformerScore
from scorebed.tasks.base import Task


class ScoreConstructor(Protocol):
    """A fresh score for a task; of the sizes given, it takes those that it knows."""

    def __call__(
        self, task: Task, standardise: Standardiser, sizes: Mapping[str, int], *, key: PRNGKeyArray
    ) -> Score: ...


def _particles(task: Task, standardise: Standardiser, sizes: Mapping[str, int], *, key: PRNGKeyArray) -> Score:
    taken = {name: sizes[name] for name in ("particles", "cloud", "width")}
    return LikelihoodParticles(task, standardise, **taken, key=key)


def _direct(task: Task, standardise: Standardiser, sizes: Mapping[str, int], *, key: PRNGKeyArray) -> TransformerScore:
    return TransformerScore(
        task, standardise, width=sizes["width"], blocks=sizes["blocks"], heads=sizes["heads"], key=key
    )


def _conservative(task: Task, standardise: Standardiser, sizes: Mapping[str, int], *, key: PRNGKeyArray) -> Score:
    network = _direct(task, standardise, sizes, key=named(key, "network"))
    return ConservativeScore(network, key=named(key, "projection"))


SCORES: dict[str, ScoreConstructor] = {
    "particles": _particles,
    "transformer": _conservative,
    "transformer-direct": _direct,
}


def make_score(
    kind: str, task: Task, standardise: Standardiser, sizes: Mapping[str, int], *, key: PRNGKeyArray
) -> Score:
    """A fresh score of a kind."""
    if kind not in SCORES:
        raise UnknownNameError("kind of score", kind, SCORES)
    return SCORES[kind](task, standardise, sizes, key=key)
