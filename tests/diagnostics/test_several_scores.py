"""Several scores against one truth: each as if it had been compared alone."""

import jax
import jax.random as jr
import numpy as np
import pytest
from jaxtyping import Array, Float

from scorebed.diagnostics.gradient_error import gradient_error
from scorebed.diagnostics.several_scores import several_gradient_errors
from scorebed.errors import InvalidValueError
from scorebed.policies import make_policy
from scorebed.scores.base import Score, ScoreValue
from scorebed.scores.exact import ExactScore
from scorebed.scores.reference import exact_truth
from scorebed.tasks import make_task


class Scaled(Score):
    """The exact score times a factor: an error that is known."""

    exact: ExactScore
    factor: Float[Array, ""]

    def __call__(self, ys: Float[Array, "T dy"], xis: Float[Array, "T dx"]) -> ScoreValue:
        return jax.tree.map(lambda part: self.factor * part, self.exact(ys, xis))

    @property
    def nle(self) -> int:
        return 0


TASK = make_task("linear-gaussian")
POLICY = make_policy("dad", TASK, key=jr.key(1))
FACTORS = (0.5, 1.0, 2.0)


@pytest.fixture(scope="module")
def found():
    scores = [Scaled(ExactScore(TASK), jax.numpy.asarray(factor)) for factor in FACTORS]
    return several_gradient_errors(
        TASK, scores, exact_truth(TASK), POLICY, outer=64, pce=(1, 31), key=jr.key(0)
    )


def test_each_is_as_if_it_were_alone(found):
    """The same keys, hence the same trajectories: equal up to rounding."""
    alone = gradient_error(
        TASK,
        Scaled(ExactScore(TASK), jax.numpy.asarray(0.5)),
        exact_truth(TASK),
        POLICY,
        outer=64,
        pce=(1, 31),
        key=jr.key(0),
    )
    for several, one in (
        (found.scores[0], alone.score),
        (found.pce[1], alone.pce[1]),
        (found.pce[31], alone.pce[31]),
    ):
        assert several.squared_bias.value == pytest.approx(one.squared_bias.value, rel=1e-3)
        assert several.variance == pytest.approx(one.variance, rel=1e-3)


def test_the_error_of_a_scaled_score_is_as_far_as_it_is_scaled(found):
    """s = c μ: the bias is (c − 1) times one vector, so squared biases are as 0.25 : 0 : 1."""
    half, none, double = (each.squared_bias.value for each in found.scores)
    assert none == pytest.approx(0.0, abs=1e-9)
    assert half == pytest.approx(0.25 * double, rel=1e-3)


def test_all_share_the_size_of_the_true_gradient(found):
    norms = {each.squared_norm.value for each in (*found.scores, *found.pce.values())}
    assert len(norms) == 1
    assert norms.pop() > 0


def test_scores_of_two_architectures_are_refused():
    with pytest.raises(InvalidValueError, match="one architecture"):
        several_gradient_errors(TASK, [], exact_truth(TASK), POLICY, outer=64, key=jr.key(0))


def test_the_cost_counts_every_call(found):
    """64 trajectories of 3 steps: one likelihood each, and 2 + 32 for PCE; the exact truth and
    scores take none.
    """
    assert found.nle == 64 * TASK.horizon * (1 + 2 + 32)
    assert np.isfinite(found.scores[0].variance)
