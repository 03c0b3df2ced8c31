"""Designs from a list: only listed ones are made, gradients of numbers lead along the list, and
names are drawn with the probabilities that are learned.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import numpyro.distributions as dist
import pytest

import scorebed as sb
from scorebed.errors import InvalidValueError
from scorebed.policies.exploring import Exploring
from scorebed.samplers.paper import paper_sampler, reference_sampler
from scorebed.samplers.spaced import spaced_designs
from scorebed.tasks.declare import categories, ordered, ranges
from scorebed.training.contrastive import pce_loss
from scorebed.training.predictive import enumerates, sampled_loss

ALARM = 4.892  # standard errors: one false alarm in a million
SPACE = ranges(
    {"time [h]": (0.0, 2.0), "dose [mg]": [20, 5, 10], "route": ["oral", "vein", "skin"]}
)
LISTS = [(5.0, 10.0, 20.0), (0.0, 1.0, 2.0)]


class Routes(sb.IID, sb.Discrete):
    """Only one of three routes tells anything; which one does not depend on the data."""

    horizon = 2
    prior = sb.parameters({"effect": dist.Normal(0.0, 1.0)})
    designs = SPACE
    outcomes = categories("works", ("no", "yes"))

    def probabilities(self, theta, state, xi):
        del state
        time, dose, route = xi
        tells = jnp.where(route == 1, 2.0, 0.1)
        yes = jax.nn.sigmoid(tells * theta[0] * dose / 10 - 0.1 * time)
        return jnp.stack([1 - yes, yes])


def test_every_design_is_listed():
    task = Routes()
    us = 2 * jr.normal(jr.key(0), (50, SPACE.free_dim))
    made = [SPACE.constrain(us), SPACE.choose(us, jr.gumbel(jr.key(1), us.shape))]
    made += [jax.vmap(lambda k: paper_sampler(task).sample(key=k))(jr.split(jr.key(2), 25))]
    made += [reference_sampler(task)[0].sample(key=jr.key(3)), spaced_designs(task)]
    for policy in ("dad", "gru", "attention", "plan", "static", "belief"):
        made += [sb.simulate(task, sb.make_policy(policy, task, key=jr.key(4)), key=jr.key(5)).xis]
    for xis in made:
        rows = np.asarray(xis).reshape(-1, 3)
        assert np.isin(rows[:, 1], LISTS[0]).all()
        assert np.isin(rows[:, 2], LISTS[1]).all()
        assert ((rows[:, 0] >= 0) & (rows[:, 0] <= 2)).all()


def test_u_leads_back_to_its_design_and_names_are_one_hot():
    xis = jnp.asarray([[0.5, 5.0, 2.0], [1.9, 20.0, 0.0], [1.0, 10.0, 1.0]])
    np.testing.assert_allclose(SPACE.constrain(SPACE.unconstrain(xis)), xis, rtol=1e-5)
    np.testing.assert_array_equal(SPACE.nearest(xis + 0.1)[:, 1:], xis[:, 1:])
    assert SPACE.normalise(xis).shape == (3, SPACE.free_dim) == (3, 5)
    np.testing.assert_array_equal(SPACE.normalise(xis)[0, 2:], [0, 0, 1])
    assert SPACE.log_jacobian(SPACE.unconstrain(xis)).shape == (3, 5)


def test_numbers_have_the_gradient_of_the_number_between_and_names_none():
    u = jnp.asarray([0.2, 0.1, 1.0, 0.0, -1.0])
    slopes = jax.jacobian(SPACE.constrain)(u)
    assert slopes[0, 0] > 0
    assert slopes[1, 1] > 0  # along the list: doses rise
    np.testing.assert_array_equal(slopes[2], 0)
    between = 10.0 * 1.5 * (1 - jnp.tanh(0.1) ** 2)  # from 10 to 20, three places on (−1, 1)
    np.testing.assert_allclose(slopes[1, 1], between, rtol=1e-5)


def test_names_are_drawn_with_the_probabilities_that_are_learned():
    # Catches noise that is not Gumbel, and preferences that are not logits.
    u, N = jnp.asarray([0.0, 0.0, 1.0, 0.0, -1.0]), 20_000
    xis = SPACE.choose(jnp.tile(u, (N, 1)), jr.gumbel(jr.key(0), (N, 5)))
    shares = np.bincount(np.asarray(xis[:, 2]).astype(int), minlength=3) / N
    chances = np.exp([SPACE.log_choice(u, jnp.asarray([0.0, 5.0, float(j)])) for j in range(3)])
    assert np.isclose(chances.sum(), 1.0)
    assert np.all(np.abs(shares - chances) <= ALARM * np.sqrt(chances * (1 - chances) / N))


@pytest.mark.parametrize("by", ["predictive", "pce"])
def test_the_gradient_among_names_is_that_of_enumeration(by):
    # One step: ∇ Σ_j softmax(u)_j V_j, V_j the information of name j by the same estimator.
    # Catches a choice that gets no credit, or that of its own baseline.
    class One(Routes):
        horizon = 1

    task = One()
    static = sb.make_policy("static", task, key=jr.key(0))
    static = eqx.tree_at(lambda s: s.us, static, jnp.asarray([[0.0, 2.0, 0.3, 0.0, -0.2]]))
    params, rest = eqx.partition(static, eqx.is_inexact_array)
    assert not enumerates(task)
    nodes, weights = np.polynomial.hermite_e.hermegauss(32)
    thetas, log_w = jnp.asarray(nodes[:, None], jnp.float32), jnp.log(weights / weights.sum())
    log_w = log_w.astype(jnp.float32)

    def information(j):
        xi = SPACE.constrain(static.us[0]).at[2].set(float(j))
        each = jax.vmap(lambda theta: task.log_probs(theta, None, xi))(thetas)
        marginal = jax.nn.logsumexp(log_w[:, None] + each, axis=0)
        return (jnp.exp(log_w[:, None] + each) * (each - marginal)).sum()

    gains = jnp.stack([information(j) for j in range(3)])
    truth = jax.grad(lambda u: (jax.nn.softmax(u) * gains).sum())(static.us[0, 2:])
    if by == "predictive":
        from scorebed.densities.predictive import WeighedPredictive

        exact = WeighedPredictive(task, thetas, log_w)
        loss, allowed = sampled_loss(rest, task, exact, batch=32), 0.0
    else:
        loss, allowed = pce_loss(rest, task, batch=32, inner=127), 0.005  # its bias
    one = jax.grad(lambda p, k: next(iter(loss(p, k).values())))
    each = -jax.jit(jax.vmap(lambda k: one(params, k).us[0, 2:]))(jr.split(jr.key(1), 500))
    error = ALARM * each.std(0) / 500**0.5
    assert jnp.abs(truth).max() > 2 * error.max()
    assert (jnp.abs(each.mean(0) - truth) <= error + allowed).all()


def test_what_cannot_be_is_refused():
    for wrong in ([1.0], [1.0, 1.0], ["a", 1.0], [], [1.0, float("nan")]):
        with pytest.raises(InvalidValueError, match="Fix: "):
            ranges({"dose": wrong})

    class Tied(Routes):
        constraint = ordered("dose [mg]")

    with pytest.raises(InvalidValueError, match="come from a list"):
        _ = Tied().feasible
    with pytest.raises(InvalidValueError, match="use the policy belief"):
        Exploring(sb.make_policy("random", Routes(), key=jr.key(0)), SPACE).design(
            None, jnp.zeros(8)
        )
