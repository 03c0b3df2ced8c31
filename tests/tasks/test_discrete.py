"""Tasks with finitely many outcomes: the sampler follows the probabilities, every form of the
density agrees, and what is declared wrongly is refused.
"""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import numpyro.distributions as dist
import pytest

import scorebed as sb
from scorebed.errors import InvalidValueError
from scorebed.rollout import step_log_probs
from scorebed.tasks.declare import categories, counts, measured, parameters, ranges

ALARM = 4.892  # standard errors: one false alarm in a million


class Answers(sb.Markov, sb.Discrete):
    """Two outcomes of a step, and a state: an answer that follows the last one, and a count."""

    horizon = 3
    prior = parameters({"a": dist.Normal(0.0, 1.0)})
    designs = ranges({"x": (-1.0, 1.0)})
    outcomes = categories("answer", ("no", "perhaps", "yes")) + counts("clicks", at_most=3)

    def start(self):
        return jnp.zeros(2)

    def probabilities(self, theta, state, xi):
        logits = jnp.stack([theta[0], xi[0] + state[0], 0.3 * state[1]])
        p = jax.nn.sigmoid(theta[0] * xi[0])
        return [jax.nn.softmax(logits), jnp.stack([1 - p, p / 2, p / 3, p / 6])]


TASK = Answers()
THETA, STATE, XI = jnp.asarray([0.7]), jnp.asarray([2.0, 1.0]), jnp.asarray([0.4])


def test_outcomes_are_drawn_with_their_probabilities():
    # Catches an outcome that is too frequent by a fiftieth.
    N = 20_000
    draw = jax.jit(jax.vmap(lambda eps: TASK.outcome(THETA, STATE, XI, eps)))
    ys = draw(jr.normal(jr.key(0), (N, 2)))
    rows = np.asarray(jax.vmap(TASK.outcome_index)(ys))
    chances = np.exp(np.asarray(TASK.log_probs(THETA, STATE, XI)))
    shares = np.bincount(rows, minlength=TASK.outcome_count) / N
    assert np.all(np.abs(shares - chances) <= ALARM * np.sqrt(chances * (1 - chances) / N))
    np.testing.assert_array_equal(TASK.all_outcomes()[rows], ys)


def test_all_forms_of_the_density_agree():
    of_all = TASK.log_probs(THETA, STATE, XI)
    one_by_one = super(sb.Discrete, TASK).log_probs(THETA, STATE, XI)
    np.testing.assert_allclose(of_all, one_by_one, rtol=1e-5)
    np.testing.assert_allclose(jnp.exp(of_all).sum(), 1.0, rtol=1e-5)
    run = sb.simulate(TASK, sb.make_policy("static", TASK, key=jr.key(1)), key=jr.key(2))
    steps = step_log_probs(TASK, run.theta, run.ys, run.xis)
    rows = jax.vmap(TASK.outcome_index)(run.ys)
    np.testing.assert_allclose(
        steps[jnp.arange(3), rows].sum(),
        sb.log_likelihood(TASK, run.theta, run.ys, run.xis),
        rtol=1e-5,
    )


def test_values_have_names_where_they_were_given_some():
    answer, clicks = TASK.outcomes
    assert [answer.label(value) for value in answer.values] == ["no", "perhaps", "yes"]
    assert (clicks.label(1.0), clicks.show(1.0), answer.show(2.0)) == (None, "1", "yes")
    assert TASK.discrete_outcomes
    assert TASK.outcome_count == 12
    assert not sb.make_task("pendulum").discrete_outcomes
    assert measured("rate")[0].values == ()


@pytest.mark.parametrize(
    "declare",
    [
        lambda: categories("answer", "yes"),
        lambda: categories("answer", ("yes",)),
        lambda: categories("answer", ("yes", "yes")),
        lambda: categories("answer", (" yes", "no")),
        lambda: counts("clicks", at_most=0),
    ],
)
def test_what_is_declared_wrongly_is_refused(declare):
    with pytest.raises(InvalidValueError, match="Fix: "):
        declare()


def test_a_continuous_method_refuses_and_names_those_that_serve():
    from scorebed.methods.reading import read_method
    from scorebed.presets.reader import default_method, preset_values

    assert default_method("quick", TASK) == "predictive"
    assert default_method("quick", sb.make_task("pendulum")) == "score"
    values = preset_values("quick", "answers", TASK, method="score")
    with pytest.raises(InvalidValueError, match="predictive, pce"):
        read_method("score", values).supports(TASK)
    values = preset_values("quick", "answers", TASK, method="predictive")
    assert values["policy"] == "belief"
    read_method("predictive", values).supports(TASK)
    pendulum = sb.make_task("pendulum")
    with pytest.raises(InvalidValueError, match="finitely many"):
        read_method("predictive", values).supports(pendulum)
