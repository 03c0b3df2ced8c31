"""Policies for finitely many outcomes, against enumeration: an oracle knows all histories and all
θ of a quadrature rule.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import numpyro.distributions as dist
import pytest

import scorebed as sb
from scorebed.densities.predictive import ParticlePredictive, WeighedPredictive, all_histories
from scorebed.estimators.predictive import designs_along
from scorebed.samplers.paper import paper_sampler
from scorebed.training.contrastive import jumps
from scorebed.training.predictive import cross_entropy, sampled_loss, train_predictive, tree_loss

ALARM = 4.892  # standard errors: one false alarm in a million


class Threshold(sb.IID, sb.Discrete):
    """Is a stimulus seen? With slips, so that no answer is certain."""

    horizon: int = eqx.field(static=True, default=2)
    prior = sb.parameters({"threshold": dist.Normal(0.0, 1.0)})
    designs = sb.ranges({"stimulus": (-3.0, 3.0)})
    outcomes = sb.categories("seen", ("no", "yes"))

    def probabilities(self, theta, state, xi):
        del state
        yes = 0.02 + 0.96 * jax.nn.sigmoid(4 * (xi[0] - theta[0]))
        return jnp.stack([1 - yes, yes])


NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(48)
THETAS = jnp.asarray(NODES[:, None], jnp.float32)
LOG_WEIGHTS = jnp.asarray(np.log(WEIGHTS / WEIGHTS.sum()), jnp.float32)


def exact(task):
    return WeighedPredictive(task, THETAS, LOG_WEIGHTS)


def policy_for(task):
    """A small network, far from symmetric."""
    policy = sb.POLICIES["dad"](task, hidden=(4,), encoding=3, key=jr.key(3))
    larger = jax.tree.map(lambda leaf: 2 * leaf if eqx.is_inexact_array(leaf) else leaf, policy)
    return eqx.tree_at(lambda p: p.emitter.bias, larger, replace_fn=lambda bias: bias + 0.3)


def enumerated_eig(params, rest, task):
    """Σ_θ w Σ_h p(h | θ) log p(h | θ) / p(h)."""
    policy = eqx.combine(params, rest)
    ys = jnp.asarray(all_histories(task), jnp.float32)
    noise = jnp.zeros((task.horizon, 0))
    xis = jax.vmap(lambda y: designs_along(policy, y, noise))(ys)
    of_history = jax.vmap(sb.log_likelihood, in_axes=(None, None, 0, 0))
    log_p = jax.vmap(lambda theta: of_history(task, theta, ys, xis))(THETAS)
    log_m = jax.nn.logsumexp(LOG_WEIGHTS[:, None] + log_p, axis=0)
    return (jnp.exp(LOG_WEIGHTS[:, None] + log_p) * (log_p - log_m)).sum()


def flat(tree):
    return jnp.concatenate([leaf.reshape(-1) for leaf in jax.tree.leaves(tree)])


@pytest.mark.parametrize("loss", [tree_loss, sampled_loss])
@pytest.mark.parametrize("horizon", [1, 2])
def test_the_exact_predictive_gives_the_gradient_of_the_enumerated_eig(horizon, loss):
    # Catches a sign, a step whose reward is left out, a reward that goes back in time, and a
    # baseline that knows the outcome.
    task = Threshold(horizon)
    params, rest = eqx.partition(policy_for(task), eqx.is_inexact_array)
    truth = flat(jax.jit(jax.grad(lambda p: enumerated_eig(p, rest, task)))(params))
    of_batch = loss(rest, task, exact(task), batch=32)
    one = jax.grad(lambda p, k: of_batch(p, k)["upper bound"])
    each = -jax.jit(jax.vmap(lambda k: flat(one(params, k))))(jr.split(jr.key(1), 1000))
    error = each.std(0) / 1000**0.5
    assert jnp.linalg.norm(truth) > 10 * jnp.linalg.norm(error)  # there is something to see
    assert (jnp.abs(each.mean(0) - truth) <= ALARM * error + 1e-6).all()


def test_bounds_and_the_value_of_the_estimator_agree_with_enumeration():
    task = Threshold()
    policy = policy_for(task)
    params, rest = eqx.partition(policy, eqx.is_inexact_array)
    truth = float(enumerated_eig(params, rest, task))
    found = sb.eig_bounds(task, policy, outer=2048, inner=2000, key=jr.key(0))
    assert found.lower - ALARM * found.lower_se <= truth <= found.upper + ALARM * found.upper_se
    value = jax.jit(lambda k: tree_loss(rest, task, exact(task), batch=256)(params, k))
    values = [-float(value(jr.key(i))["upper bound"]) for i in range(16)]
    assert abs(np.mean(values) - truth) <= 6 * np.std(values) / 4  # a t of 15 degrees of freedom
    # A worse predictive gives a larger value, on the same draws: an upper bound.
    flatter = WeighedPredictive(task, 2 * THETAS, LOG_WEIGHTS)
    worse = -float(tree_loss(rest, task, flatter, batch=256)(params, jr.key(0))["upper bound"])
    assert worse > values[0] + 0.01


def test_a_history_is_predicted_by_what_came_before_it():
    task = Threshold()
    ys, xis = jnp.asarray([[1.0], [0.0]]), jnp.asarray([[0.3], [-0.5]])
    predicted = exact(task)(ys, xis)
    np.testing.assert_allclose(jnp.exp(predicted).sum(-1), 1.0, rtol=1e-5)
    # The chain rule: the predictives of a history multiply to its marginal.
    each = jax.vmap(lambda theta: sb.log_likelihood(task, theta, ys, xis))(THETAS)
    marginal = jax.nn.logsumexp(LOG_WEIGHTS + each)
    np.testing.assert_allclose(predicted[0, 1] + predicted[1, 0], marginal, rtol=1e-4)


@pytest.fixture(scope="module")
def learned():
    task, sizes = Threshold(), {"particles": 8, "width": 16, "batch": 64}
    return task, train_predictive(task, steps=250, **sizes, learning_rate=5e-3, key=jr.key(5))


def test_cross_entropy_leads_to_the_exact_predictive(learned):
    task, trained = learned
    xis = jr.uniform(jr.key(6), (128, 2, 1), minval=-3.0, maxval=3.0)
    # Histories as they occur: a rare one is learned from few experiments.
    thetas = jr.normal(jr.key(7), (128, 1))
    ys = jax.vmap(lambda *each: sb.simulate_outcomes(task, *each))(
        thetas, xis, jr.normal(jr.key(8), (128, 2, 1))
    )
    p, q = (jax.jit(jax.vmap(each))(ys, xis) for each in (exact(task), trained.predictive))
    np.testing.assert_allclose(jnp.exp(q).sum(-1), 1.0, rtol=1e-5)
    gap = (jnp.exp(p) * (p - q)).sum((-1, -2))
    assert 0 <= float(gap.mean()) < 0.01  # untrained it is 0.03 and more
    fresh = ParticlePredictive(
        task, trained.predictive.code.standardise, particles=8, width=16, key=jr.key(9)
    )
    before = (jnp.exp(p) * (p - jax.jit(jax.vmap(fresh))(ys, xis))).sum((-1, -2))
    assert before.mean() > 2 * gap.mean()


def test_a_prediction_does_not_see_its_own_outcome_nor_later_steps(learned):
    _, trained = learned
    ys, xis = jnp.asarray([[1.0], [0.0]]), jnp.asarray([[0.3], [-0.5]])
    predict = eqx.filter_jit(trained.predictive)
    now = predict(ys, xis)
    # Up to rounding: it may sum up in another order.
    np.testing.assert_allclose(now, predict(ys.at[1].set(1.0), xis), rtol=1e-6)
    np.testing.assert_allclose(now[0], predict(1 - ys, xis.at[1].set(2.0))[0], rtol=1e-6)
    assert not np.allclose(now[1], predict(ys.at[0].set(0.0), xis)[1])


def test_policies_may_take_part_in_the_cross_entropy(learned):
    task, trained = learned
    params, rest = eqx.partition(trained.predictive, eqx.is_inexact_array)
    how = {"batch": 8, "policy": policy_for(task)}
    loss = cross_entropy(rest, task, paper_sampler(task), **how)
    assert np.isfinite(loss(params, jr.key(0))["cross-entropy"])


def test_outcomes_that_jump_have_the_gradient_of_their_probabilities():
    # For a single answer with values v the gradient is Σ_y v_y ∇p_y, whatever the others are.
    values, slope = jnp.asarray([3.0, -1.0]), 0.7

    def one(a, key):
        p = jax.nn.sigmoid(slope * a)
        y = (jr.uniform(key, (16,)) < jax.lax.stop_gradient(p)).astype(int)
        log_p = jnp.log(jnp.where(y == 1, p, 1 - p))
        return jumps(values[y], log_p).mean()

    each = jax.jit(jax.vmap(jax.grad(one), in_axes=(None, 0)))(0.4, jr.split(jr.key(0), 4000))
    truth = jax.grad(lambda a: (values[1] - values[0]) * jax.nn.sigmoid(slope * a))(0.4)
    assert abs(each.mean() - truth) <= ALARM * each.std() / 4000**0.5
