"""The paper's network learns with its authors' frequencies, and does not with those of the text.

Relative errors are rms(s − reference) / rms(reference), part by part, on the sampler's designs."""

import functools
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

from scorebed.estimators.matching import conditional_score
from scorebed.nets.fourier import FourierFeatures
from scorebed.rollout import pilot_runs
from scorebed.samplers.paper import paper_sampler
from scorebed.scores.conservative import Transformer
from scorebed.scores.exact import ExactScore
from scorebed.scores.transformer import FREQUENCY_SCALE
from scorebed.tasks.library.location import LocationFinding
from scorebed.tasks.oracles.linear_gaussian import LinearGaussian
from scorebed.training.score import (
    automatic_weights,
    fresh_score,
    mean_weights,
    score_loss,
    score_optimiser,
)

TINY = {"width": 32, "blocks": 1, "heads": 2, "features": 32, "hidden": (32, 32)}
SMALL = {"width": 64, "blocks": 1, "heads": 4, "features": 64, "hidden": (64, 64)}
# Made for 190,000 steps, the authors' frequencies of 0.1 learn slowly; a few hundred need larger
# ones (docs/decisions/026).
FEW_STEPS = 0.5
LITERAL = 628.3  # 2π · 10 over 0.1: the frequencies of the text over those of the program


class Training(NamedTuple):
    start: eqx.Module
    train: object
    errors: object


@functools.cache
def training(task, exact, kind, *, steps, batch, rate, lambda_y=1000.0):
    """A conservative network, its training as one compiled function, and its relative errors:
    against the exact score and with weights by a pilot, or against conditional scores.
    """
    sampler = paper_sampler(task)
    start = fresh_score(kind, task, sampler, key=jr.key(0))
    if exact:
        weights = automatic_weights(task, sampler, relative=0.0, key=jr.key(1))
    else:
        weights = mean_weights(task, lambda_y)
    params, static = eqx.partition(start, eqx.is_inexact_array)
    loss = score_loss(static, task, sampler, weights, batch=batch)
    optimiser = score_optimiser(steps=steps, learning_rate=rate, warmup_share=0.1, clip=1.0)

    def step(carry, key):
        params, average, state = carry
        grad = jax.grad(lambda p: sum(loss(p, key).values()))(params)
        with jax.numpy_dtype_promotion("standard"):  # Adam raises a number to an integer array
            update, state = optimiser.update(grad, state, params)
        params = optax.apply_updates(params, update)
        average = jax.tree.map(lambda a, p: a + 10 / steps * (p - a), average, params)
        return (params, average, state), None

    @jax.jit
    def train(params):
        carry = params, params, optimiser.init(params)
        return jax.lax.scan(step, carry, jr.split(jr.key(2), steps))[0][1]

    @jax.jit
    def errors(params):
        runs = pilot_runs(task, sampler, key=jr.key(3))
        values = jax.vmap(eqx.combine(params, static))(runs.ys, runs.xis)
        target = (
            jax.vmap(ExactScore(task))(runs.ys, runs.xis)
            if exact
            else jax.vmap(lambda run: conditional_score(task, run))(runs)
        )
        return jnp.stack(
            [
                jnp.sqrt(((v - t) ** 2).sum() / (t**2).sum())
                for v, t in zip(values, target, strict=True)
            ]
        )

    return Training(params, train, errors)


def literal(params):
    """The same network with frequencies of 2π · N(0, 10²)."""
    return jax.tree.map(
        lambda f: (
            eqx.tree_at(lambda x: x.frequencies, f, LITERAL * f.frequencies)
            if isinstance(f, FourierFeatures)
            else f
        ),
        params,
        is_leaf=lambda f: isinstance(f, FourierFeatures),
    )


def test_a_potential_learns_a_known_score_and_collapses_with_the_frequencies_of_the_text():
    """One step of the linear-Gaussian task, two hundred steps of training: with frequencies of the
    text the score stays at zero, a relative error of one.
    """
    fit = training(
        LinearGaussian(horizon=1), True, Transformer(**TINY), steps=200, batch=128, rate=4e-3
    )
    found = np.asarray(fit.errors(fit.train(fit.start)))
    other = np.asarray(fit.errors(fit.train(literal(fit.start))))
    assert (found < 0.5).all(), found
    assert (other > 0.9).all(), other


@pytest.mark.slow
def test_on_the_linear_gaussian_task_it_comes_within_a_tenth_of_the_exact_score():
    kind = Transformer(**SMALL, frequency_scale=FEW_STEPS)
    fit = training(LinearGaussian(), True, kind, steps=1000, batch=256, rate=4e-3)
    found = np.asarray(fit.errors(fit.train(fit.start)))
    assert (found < 0.1).all(), found


@pytest.mark.slow
@pytest.mark.parametrize(("frequency_scale", "most"), [(FREQUENCY_SCALE, 0.65), (FEW_STEPS, 0.5)])
def test_on_location_finding_it_learns_most_of_the_outcomes_part(frequency_scale, most):
    """Against conditional scores, whose own noise is about a third of their size. The squared error
    is below a half with the authors' frequencies, the error itself with larger ones.
    """
    kind = Transformer(**SMALL, by_noise=True, frequency_scale=frequency_scale)
    fit = training(LocationFinding(), False, kind, steps=300, batch=96, rate=4e-3)
    found = np.asarray(fit.errors(fit.train(fit.start)))
    assert found[0] < most, found
