"""Discrete outcomes of NumPyro models: probabilities are NumPyro's, the tail of counts is kept, and
what cannot be is refused by name.
"""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import scorebed as sb
from scorebed.errors import InvalidValueError

RANGE = sb.ranges({"x": (0.0, 2.0)})
XI, THETA = jnp.asarray([1.5]), jnp.asarray([0.4])
KINDS = {
    "bernoulli": (lambda a, x: dist.Bernoulli(logits=a * x), 1),
    "bernoulli by probability": (lambda a, x: dist.Bernoulli(probs=0.5 + 0.1 * jnp.tanh(a * x)), 1),
    "binomial": (lambda a, x: dist.Binomial(5, logits=a * x), 5),
    "categorical": (lambda a, x: dist.Categorical(logits=jnp.stack([a, x, a * x])), 2),
    "poisson": (lambda a, x: dist.Poisson(jnp.exp(a) * x), None),
    "geometric": (lambda a, x: dist.Geometric(logits=a + x), None),
}


def task_of(make, **more):
    def model(xi):
        a = numpyro.sample("a", dist.Normal(0.0, 0.3))
        numpyro.sample("y", make(a, xi[0]))

    return sb.from_numpyro(model, designs=RANGE, observe="y", horizon=3, **more)


@pytest.mark.parametrize("kind", KINDS)
def test_probabilities_are_those_of_the_distribution(kind):
    make, highest = KINDS[kind]
    task = task_of(make)
    values = np.asarray(task.outcomes[0].values)
    assert task.discrete_outcomes
    assert highest is None or values[-1] == highest
    found = np.exp(np.asarray(task.log_probs(THETA, None, XI)))
    with_numbers = make(THETA[0], XI[0])
    with jax.numpy_dtype_promotion("standard"):
        expected = np.exp(np.asarray(with_numbers.log_prob(jnp.arange(len(values)))))
    np.testing.assert_allclose(found[:-1], expected[:-1], rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(found.sum(), 1.0, rtol=1e-5)
    one = task.log_prob(jnp.asarray([1.0]), THETA, None, XI)
    np.testing.assert_allclose(np.exp(one), expected[1], rtol=1e-4)


def test_a_task_from_a_model_is_sound_and_can_be_simulated():
    task = task_of(KINDS["binomial"][0])
    assert sb.check_task(task, key=jr.key(0)) == []
    run = sb.simulate(task, sb.make_policy("static", task, key=jr.key(1)), key=jr.key(2))
    assert np.isin(run.ys, task.outcomes[0].values).all()


def test_counts_beyond_the_largest_are_counted_as_it():
    task = task_of(lambda a, x: dist.Poisson(4.0 + a * x), at_most={"y": 3})
    found = np.exp(np.asarray(task.log_probs(THETA, None, XI)))
    with jax.numpy_dtype_promotion("standard"):
        rest = 1 - np.exp(dist.Poisson(4.0 + 0.6).log_prob(jnp.arange(3))).sum()
    np.testing.assert_allclose(found[-1], rest, rtol=1e-4)


def test_several_numbers_of_a_site_are_outcomes_of_their_own():
    def model(xi):
        a = numpyro.sample("a", dist.Normal(0.0, 0.3))
        with numpyro.plate("wells", 2):
            numpyro.sample("y", dist.Bernoulli(logits=a * xi[0] + jnp.asarray([0.0, 1.0])))

    task = sb.from_numpyro(model, designs=RANGE, observe="y", horizon=2)
    assert [q.name for q in task.outcomes] == ["y 1", "y 2"]
    assert task.outcome_count == 4


def mixed(xi):
    a = numpyro.sample("a", dist.Normal(0.0, 0.3))
    numpyro.sample("y", dist.Bernoulli(logits=a * xi[0]))
    numpyro.sample("level", dist.Normal(a, 1.0))


def chained(xi):
    a = numpyro.sample("a", dist.Normal(0.0, 0.3))
    y = numpyro.sample("y", dist.Bernoulli(logits=a * xi[0]))
    numpyro.sample("then", dist.Bernoulli(logits=2.0 * y - 1.0))


def huge(xi):
    a = numpyro.sample("a", dist.Normal(0.0, 0.3))
    numpyro.sample("y", dist.Poisson(1e6 * jnp.exp(a * xi[0])))


@pytest.mark.parametrize(
    ("model", "observe", "words"),
    [
        (mixed, ("y", "level"), "'level' of the model, got a continuous outcome"),
        (chained, ("y", "then"), "'then' of the model, got a distribution that depends"),
        (huge, "y", "at_most"),
    ],
)
def test_what_cannot_be_is_refused_by_name(model, observe, words):
    with pytest.raises(InvalidValueError, match=words):
        sb.from_numpyro(model, designs=RANGE, observe=observe, horizon=2)
