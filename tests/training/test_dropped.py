"""A model that overflows: points and trajectories that are not finite are left out, and counted."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

from models.overflowing_ode import Growth
from scorebed.bounds.contrastive import eig_bounds
from scorebed.check.far import find_overflow
from scorebed.inference.smc import tempered_smc
from scorebed.nets.finite import finite_cotangent
from scorebed.policies.static import Static
from scorebed.rollout import Trajectory, log_likelihoods
from scorebed.samplers.spaced import spaced_designs
from scorebed.scores.particles import LikelihoodParticles, mean_over_points
from scorebed.scores.standardise import Standardiser
from scorebed.tasks.oracles.linear_gaussian import LinearGaussian
from scorebed.tasks.priors import REACH, within_prior
from scorebed.training.clipping import clip_per_trajectory
from scorebed.training.dropped import DROPPED, allowed, mean_of_finite
from scorebed.training.fit import NonFiniteError, fit_one, gradient_of
from scorebed.training.matching import Weights, matching_terms
from scorebed.training.watched import Block, moment

TASK = Growth()
FAR = jnp.asarray([5.3, 0.0])  # where it overflows
DESIGNS = jnp.asarray([[1.0], [3.0], [8.0], [20.0]])
ONE = jnp.ones(1)


def score() -> LikelihoodParticles:
    standardise = Standardiser(ONE, ONE, ONE, ONE, 5 * ONE)
    sizes = {"particles": 2, "cloud": 2, "width": 8, "features": 4}
    return LikelihoodParticles(TASK, standardise, **sizes, key=jr.key(0))


# --- where points may lie ------------------------------------------------------------------------


def test_points_stay_where_the_prior_lives_and_those_that_do_are_not_moved():
    z = jr.normal(jr.key(0), (1000, 5))
    edge = 5**0.5 + REACH
    inside = jnp.linalg.norm(z, axis=1) < edge
    assert float(inside.mean()) > 0.99
    np.testing.assert_array_equal(within_prior(z)[inside], z[inside])
    for factor in (1e1, 1e4, 1e30):
        lengths = jnp.linalg.norm(within_prior(factor * z), axis=1)
        assert float(lengths.max()) <= edge + 1 + 1e-4
    slope = jax.vmap(jax.grad(lambda z: within_prior(z).sum()))(10 * z)
    assert bool(jnp.isfinite(slope).all())


def test_the_map_is_continuous_with_its_slope_at_the_edge():
    edge = 1 + REACH
    radial = jax.jit(jax.value_and_grad(lambda r: within_prior(r[None])[0]))
    for side in (edge - 1e-3, edge + 1e-3):
        value, slope = radial(jnp.float32(side))
        assert float(value) == pytest.approx(side, abs=1e-5)
        assert float(slope) == pytest.approx(1, abs=1e-4)


# --- points at which the model is not finite -----------------------------------------------------


def test_a_point_that_overflows_has_no_weight_and_spoils_no_derivative():
    """The score of two points, one of them far out, is that of the other alone, and so is its
    derivative in the points. Without the masks both are NaN.
    """
    near, ys = jnp.asarray([0.3, -0.2]), jnp.asarray([[0.05], [1.0], [2.0], [2.7]])

    def value(points):
        found = mean_over_points(TASK, points, lambda logs: logs, ys, DESIGNS)
        return (found.y**2).sum() + (found.xi**2).sum(), found

    both = jax.jit(jax.value_and_grad(value, has_aux=True))
    (_, found), slope = both(jnp.stack([near, FAR]))
    (_, alone), single = both(near[None])
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4), found, alone)
    np.testing.assert_allclose(slope[0], single[0], rtol=1e-3)
    np.testing.assert_array_equal(slope[1], 0)


def test_likelihoods_where_the_model_overflows_are_those_of_impossible_parameters():
    thetas = jax.vmap(TASK.prior.from_latent)(jnp.stack([jnp.zeros(2), FAR, 3 * FAR]))
    found = log_likelihoods(TASK, thetas, jnp.ones((4, 1)), DESIGNS)
    assert bool(jnp.isfinite(found[0]))
    assert bool((found[1:] == -jnp.inf).all())


def test_smc_and_bounds_stay_finite_on_a_model_that_overflows():
    ys = jnp.asarray([[0.05], [1.0], [2.0], [2.7]])
    found = tempered_smc(TASK, ys, DESIGNS, particles=256, moves=2, key=jr.key(0))
    assert bool(jnp.isfinite(found.theta).all() & jnp.isfinite(found.log_evidence))
    bounds = eig_bounds(
        TASK,
        Static.from_designs(spaced_designs(TASK), TASK.designs),
        outer=32,
        inner=4096,
        key=jr.key(1),
    )
    assert np.isfinite([bounds.lower, bounds.lower_se, bounds.upper]).all()


# --- trajectories that are not finite ------------------------------------------------------------


def test_a_trajectory_that_is_not_finite_is_dropped_from_the_loss_and_its_gradient():
    """The loss and gradient of three experiments, one of them NaN, are those of the other two."""
    made = score()
    params, static = eqx.partition(made, eqx.is_inexact_array)
    ys = jr.normal(jr.key(1), (3, 4, 1)) + 1
    runs = jax.vmap(lambda y: Trajectory(jnp.ones(2), y, DESIGNS))(ys)
    weights = Weights(jnp.ones(1), jnp.ones(1), 1.0)
    bad = eqx.tree_at(lambda r: r.ys, runs, ys.at[1, 2].set(jnp.nan))

    def loss(params, runs):
        return matching_terms(eqx.combine(params, static), TASK, runs, weights)

    of = jax.jit(lambda runs: gradient_of(lambda params, _: loss(params, runs))(params, jr.key(0)))
    terms, gradient = of(bad)
    two = jax.tree.map(lambda x: jnp.concatenate([x[:1], x[2:], x[:1], x[2:]])[:3], runs)
    assert float(terms.pop(DROPPED)) == 1
    rest, expected = of(two)
    good = jax.tree.map(lambda x: x[jnp.asarray([0, 2, 2])], runs)
    last, also = of(good)
    # Of (a, c, a) and (a, c, c): the mean over (a, c) is the mean of both.
    for name in ("y", "xi"):
        assert float(terms[name]) == pytest.approx(float(rest[name] + last[name]) / 2, rel=1e-3)
    jax.tree.map(
        lambda g, a, b: np.testing.assert_allclose(g, (a + b) / 2, rtol=5e-2, atol=1e-3),
        gradient,
        expected,
        also,
    )


def test_more_than_one_in_a_thousand_refuses_the_step():
    values = jnp.ones(3000)
    few, many = values.at[:3].set(jnp.nan), values.at[:4].set(jnp.nan)
    assert {k: float(v) for k, v in mean_of_finite({"y": few}).items()} == {"y": 1, DROPPED: 3}
    assert np.isnan(mean_of_finite({"y": many})["y"])
    assert (allowed(64), allowed(3000)) == (1, 3)


def test_gradients_of_single_trajectories_that_are_not_finite_are_dropped():
    """The only finite ones are of length one; without the mask all is NaN."""

    def loss(params, key):
        bad = jr.uniform(key) < 0.02
        return {"y": params * jnp.where(bad, jnp.nan, 1)}

    gradient = jax.jit(clip_per_trajectory(loss, batch=64, limit=1.0))
    found = [gradient(jnp.float32(2.0), jr.key(seed)) for seed in range(8)]
    dropped = [float(terms[DROPPED]) for terms, _ in found]
    assert 1 in dropped
    for (terms, total), count in zip(found, dropped, strict=True):
        assert float(total) == pytest.approx(1 - count / 64)
        assert np.isnan(terms["y"]) == (count > 1)


def test_the_count_is_no_part_of_what_is_minimised():
    def loss(params, key):
        del key
        return {"y": params**2, DROPPED: 100 * params}

    _, gradient = gradient_of(loss)(jnp.float32(3.0), jr.key(0))
    assert float(gradient) == 6


def test_blocks_count_what_was_dropped():
    terms = {"y": np.ones(3), DROPPED: np.asarray([0.0, 2.0, 1.0])}
    assert moment(Block(3, terms, [], None)).terms == {"y": 1.0, DROPPED: 3.0}
    assert DROPPED not in moment(Block(3, terms | {DROPPED: np.zeros(3)}, [], None)).terms
    # NumPy says nothing of terms that are not finite: warnings are errors here.
    assert np.isnan(moment(Block(3, {"y": np.asarray([np.inf, -np.inf])}, [], None)).terms["y"])


def test_a_derivative_that_is_not_finite_is_stopped_row_by_row_in_reverse_mode_alone():
    x = jnp.asarray([[1.0, 2.0], [0.0, 1.0]])
    root = lambda x: jnp.sqrt(finite_cotangent(x)).sum()  # noqa: E731
    np.testing.assert_allclose(jax.grad(root)(x), [[0.5, 0.5 / 2**0.5], [0, 0]])
    np.testing.assert_allclose(jax.vmap(jax.grad(root))(x), jax.grad(root)(x))
    _, tangent = jax.jvp(finite_cotangent, (x,), (jnp.full_like(x, jnp.inf),))
    assert bool(jnp.isinf(tangent).all())


# --- what is said --------------------------------------------------------------------------------


def test_the_place_where_a_model_overflows_is_found_and_named():
    found = find_overflow(TASK, key=jr.key(0))
    assert found is not None
    assert found.theta[0] > 12  # a rate that no draw of the prior has
    assert "rate = " in found.words(TASK)
    assert "time = " in found.words(TASK)
    assert find_overflow(LinearGaussian(horizon=1), key=jr.key(0)) is None


def test_training_that_stops_names_the_place():
    def loss_for(_):
        return lambda params, key: {"y": jnp.nan * params["x"] + 0 * jr.normal(key)}

    with pytest.raises(NonFiniteError, match="5 steps in a row") as caught:
        fit_one(loss_for, {"x": jnp.ones(())}, steps=10, optimiser=optax.sgd(1.0), key=jr.key(0))
    caught.value.name_place("rate = 31 1/h")
    assert str(caught.value).endswith("It is not finite at rate = 31 1/h.")
