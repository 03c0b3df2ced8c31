"""The example in one file is the library in small: same inputs, same numbers. And it stands
alone.
"""

import ast
import functools
import importlib.util
import itertools
import math
import pathlib
import re
import sys
import types

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jaxtyping import Array

from scorebed.estimators.log_ratios import lower_log_ratio, upper_log_ratio
from scorebed.estimators.matching import conditional_score, marginal_score_matching
from scorebed.estimators.score import adaptive
from scorebed.policies.dad import DAD
from scorebed.rollout import Noise, Trajectory, log_likelihood, log_likelihoods, rollout
from scorebed.samplers.ar1 import AR1
from scorebed.scores.base import Score, ScoreValue
from scorebed.scores.particles import LikelihoodParticles, sign_patterns
from scorebed.scores.standardise import Standardiser
from scorebed.tasks.library.location import LocationFinding

FILE = pathlib.Path(__file__).parents[2] / "examples" / "scorebed_in_one_file.py"
ALARM = 4.892  # standard errors: one false alarm in a million
TASK = LocationFinding(dim=2, sources=2, horizon=30, noise=0.5)
SAMPLER = AR1(TASK.horizon, TASK.designs)


def load() -> types.ModuleType:
    spec = importlib.util.spec_from_file_location(FILE.stem, FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


one = load()


@pytest.fixture(autouse=True, scope="module")
def _little_optimisation():
    """Everything here runs once: compiling costs more than running."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


@functools.cache
def experiments() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(θ, y, ξ) of the file's own."""
    draw = jax.jit(jax.vmap(lambda k: one.random_experiment(key=k)))
    return tuple(map(np.asarray, draw(jr.split(jr.key(1), 4096))))


def few() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    theta, ys, xis = experiments()
    return theta[:4], ys[:4], xis[:4]


def as_run(theta: Array, ys: Array, xis: Array) -> Trajectory:
    """An experiment of the file in the library's shapes."""
    return Trajectory(theta.reshape(-1), ys[:, None], xis)


def as_function(score: Score):
    """A score of the library in the file's shapes."""

    def function(ys, xis):
        value = score(ys[:, None], xis)
        return value.y[:, 0], value.xi

    return function


def filled(module, *args):
    """The structure that a constructor would give, with random numbers in it."""
    draws = np.random.default_rng(0)
    return jax.tree.map(
        lambda leaf: (
            jnp.asarray(draws.uniform(-0.5, 0.5, leaf.shape), leaf.dtype)
            if isinstance(leaf, jax.ShapeDtypeStruct)
            else leaf
        ),
        eqx.filter_eval_shape(module, *args, key=jr.key(0)),
    )


def arrays(*layers) -> list[Array]:
    return [p for layer in layers for p in (layer.weight, layer.bias)]


def assert_close(found: Array, truth: Array, rtol: float = 1e-4) -> None:
    """Up to the rounding of single precision: relative, and on the scale of the largest entry."""
    np.testing.assert_allclose(
        found, truth, rtol=rtol, atol=0.1 * rtol * np.abs(np.asarray(truth)).max()
    )


class Waves(Score):
    """A score that is wrong everywhere, and different at every step and in every part."""

    size: Array

    def __call__(self, ys, xis):
        steps = jnp.arange(len(ys), dtype=ys.dtype)[:, None]
        wave = jnp.sin(ys + xis.sum(1, keepdims=True) + steps)
        return ScoreValue(3 * self.size * wave, self.size * jnp.cos(wave * xis + steps))

    @property
    def nle(self) -> int:
        return 0


# --- a file of its own ---------------------------------------------------------------------------


def test_the_file_is_short_and_stands_alone():
    text = FILE.read_text()
    assert len(text.splitlines()) < 300
    imports = [
        node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    names = {a.name for n in imports if isinstance(n, ast.Import) for a in n.names}
    names |= {str(n.module) for n in imports if isinstance(n, ast.ImportFrom)}
    assert {name.split(".")[0] for name in names} - sys.stdlib_module_names == {
        "jax",
        "equinox",
        "optax",
        "numpy",
    }


# --- the model and the sampler -------------------------------------------------------------------


def test_the_likelihood_and_its_score_are_those_of_the_task():
    @jax.jit
    def both(theta, ys, xis):
        def ours(theta, ys, xis):
            return one.log_likelihood(ys, xis, theta), *one.conditional_score(ys, xis, theta)

        def theirs(theta, ys, xis):
            run = as_run(theta, ys, xis)
            score = conditional_score(TASK, run)
            return log_likelihood(TASK, run.theta, run.ys, run.xis), score.y[:, 0], score.xi

        many = one.log_likelihood(ys[0], xis[0], jnp.moveaxis(theta, 0, -1))
        return (many, *jax.vmap(ours)(theta, ys, xis)), (
            log_likelihoods(TASK, theta.reshape(4, -1), ys[0, :, None], xis[0]),
            *jax.vmap(theirs)(theta, ys, xis),
        )

    for found, truth in zip(*both(*few()), strict=True):
        assert_close(found, truth)


def test_designs_are_those_of_the_sampler():
    both = jax.jit(jax.vmap(lambda k: (one.sample_designs(key=k), SAMPLER.sample(key=k))))
    assert_close(*both(jr.split(jr.key(2), 64)))


def test_experiments_have_independent_parameters_noise_and_designs():
    # Caught: noise of the wrong size, by 11% or more; a key used twice (a correlation of one).
    theta, ys, xis = experiments()
    count = len(ys)
    distance2 = ((theta[:, None] - xis[:, :, None]) ** 2).sum(-1)
    means = np.log(TASK.background + (TASK.strength / (TASK.floor + distance2)).sum(-1))
    parts = [theta.reshape(count, -1), (ys - means) / TASK.noise]
    for normal in parts:
        assert np.abs(normal.mean(0)).max() <= ALARM / math.sqrt(count)
        assert np.abs((normal**2).mean(0) - 1).max() <= ALARM * math.sqrt(2 / count)
    parts.append(np.sign(xis[:, 0]))
    for a, b in itertools.combinations(parts, 2):
        assert np.abs(a.T @ b / count).max() <= ALARM / math.sqrt(count)


# --- stage 1 -------------------------------------------------------------------------------------


def test_the_loss_is_marginal_score_matching():
    # The slope in the score's size tells a missing stop-gradient, which the value does not.
    key, batch = jr.key(3), 4
    lambda_y = jnp.full(1, 1 / (one.TYPICAL_Y * TASK.horizon))
    lambda_xi = jnp.full(2, 1 / (one.TYPICAL_XI * TASK.horizon * 2))

    def ours(size):
        return one.score_loss(as_function(Waves(size)), batch, key=key)

    def theirs(size):
        def each(key):
            run = as_run(*one.random_experiment(key=key))
            return marginal_score_matching(
                Waves(size), TASK, run, lambda_y=lambda_y, lambda_xi=lambda_xi, relative=1.0
            )

        terms = jax.vmap(each)(jr.split(key, batch))
        return (terms.y + terms.xi).mean()

    both = jax.jit(lambda size: (jax.value_and_grad(ours)(size), jax.value_and_grad(theirs)(size)))
    for found, truth in zip(*both(jnp.asarray(4.0)), strict=True):
        assert_close(found, truth)


def test_the_weights_of_the_loss_are_typical_sizes():
    # Medians of 4096 · 30 squared conditional scores, from the residuals r: (r/σ²)² in y, and (r/σ²
    # ∂μ/∂ξ / μ)² in ξ.
    theta, ys, xis = experiments()
    apart = theta[:, None] - xis[:, :, None]
    near = 1 / (TASK.floor + (apart**2).sum(-1, keepdims=True))
    mu = TASK.background + near.sum(2)
    s_y = (ys[..., None] - np.log(mu)) / TASK.noise**2
    s_xi = s_y * (2 * near**2 * apart).sum(2) / mu
    assert abs(np.median(s_y**2) / one.TYPICAL_Y - 1) < 0.1
    assert abs(np.median(s_xi**2) / one.TYPICAL_XI - 1) < 0.1
    for mean, scale, values in ((one.MEAN_Y, one.SCALE_Y, ys), (0.0, one.SCALE_XI, xis)):
        assert abs(values.mean() - mean) < 0.1 * scale
        assert abs(values.std() / scale - 1) < 0.1


def test_the_particle_score_is_the_librarys():
    # On one experiment as the network has it, and with all particles at one place without width:
    # there it is the conditional score of that place.
    theta, ys, xis = few()
    ours = filled(one.ParticleScore)
    layers = (*ours.encoder.layers, *ours.head.layers)
    y, xi = jnp.ones(1), jnp.ones(2)
    scales = Standardiser(one.MEAN_Y * y, one.SCALE_Y * y, y, 0 * xi, one.SCALE_XI * xi)
    theirs = filled(LikelihoodParticles, TASK, scales)
    patterns = jnp.asarray(sign_patterns(8, 4), jnp.float32)

    @jax.jit
    def values(parameters, ys, xis):
        network = eqx.tree_at(lambda s: arrays(*s.encoder.layers, *s.head.layers), ours, parameters)
        copy = eqx.tree_at(
            lambda s: [
                s.encoder.features.frequencies,
                *arrays(*s.encoder.mlp.layers, *s.head.layers),
                s.patterns,
                s.encoder.standardise,
            ],
            theirs,
            [ours.frequencies, *[p.T for p in parameters], patterns, scales],
        )
        return network(ys, xis), as_function(copy)(ys, xis)

    # Within the prior, where the library leaves points as they are.
    near = arrays(*layers)
    near[-2] = 0.01 * near[-2]
    for found, truth in zip(*values(near, ys[0], xis[0]), strict=True):
        assert_close(found, truth, 1e-3)

    n = one.PARTICLES
    out = jnp.concatenate(
        [jnp.tile(theta[1].reshape(-1), n), jnp.full(4 * n, -60.0), jnp.zeros(n + 1)]
    )
    placed, _ = values([*arrays(*layers)[:-2], 0 * layers[-1].weight, out], ys[0], xis[0])
    for found, truth in zip(
        placed, jax.jit(one.conditional_score)(ys[0], xis[0], theta[1]), strict=True
    ):
        assert_close(found, truth)


# --- stage 2 -------------------------------------------------------------------------------------


def test_the_policy_has_the_papers_sizes_and_a_small_start():
    ours, theirs = one.DAD(key=jr.key(5)), eqx.filter_eval_shape(DAD, TASK, key=jr.key(5))
    found = arrays(*ours.encoder.layers, ours.emitter)
    assert [p.T.shape for p in found] == [
        p.shape for p in arrays(*theirs.encoder.layers, theirs.emitter)
    ]
    # The largest of 32 draws of U(−0.05, 0.05) is below 0.03 one time in 10⁷.
    assert 0.03 < float(jnp.abs(ours.emitter.weight).max()) < 0.05


def test_the_gradient_is_that_of_theorem_1():
    # `policy_loss` and the library's estimator on the same parameters and noise: rollout, score
    # terms, their signs, the mean.
    ours = filled(one.DAD)
    # Designs that answer to outcomes, but not so strongly that rounding grows from step to step.
    ours = eqx.tree_at(lambda p: p.emitter.weight, ours, 0.02 * ours.emitter.weight)
    theirs = eqx.tree_at(
        lambda p: arrays(*p.encoder.layers, p.emitter),
        eqx.filter_eval_shape(DAD, TASK, key=jr.key(0)),
        [p.T for p in arrays(*ours.encoder.layers, ours.emitter)],
    )
    waves, batch, key = Waves(jnp.asarray(1.0)), 4, jr.key(6)

    def loss(policy):
        key_theta, key_noise = jr.split(key)

        def each(theta, eps):
            noise = Noise(eps[:, None], jnp.zeros((TASK.horizon, 0)))
            run = jax.lax.stop_gradient(rollout(TASK, policy, theta.reshape(-1), noise))
            # The likelihood term, which the library leaves out where the noise is additive: a
            # value, and no gradient.
            constant = log_likelihood(TASK, run.theta, run.ys, run.xis)
            return adaptive(TASK, waves, policy, run.theta, noise) + constant, run.xis

        values, xis = jax.vmap(each)(
            jr.normal(key_theta, (batch, 2, 2)), jr.normal(key_noise, (batch, TASK.horizon))
        )
        return -values.mean(), xis

    @eqx.filter_jit
    def both(ours, theirs):
        found = eqx.filter_value_and_grad(
            lambda p: one.policy_loss(p, as_function(waves), batch, key=key)
        )(ours)
        return found, eqx.filter_value_and_grad(loss, has_aux=True)(theirs)

    (found, gradient), ((truth, xis), slope) = both(ours, theirs)
    assert float(xis.std(1).mean()) > 0.1
    assert_close(found, truth)
    for a, b in zip(
        arrays(*gradient.encoder.layers, gradient.emitter),
        arrays(*slope.encoder.layers, slope.emitter),
        strict=True,
    ):
        assert_close(a.T, b, 1e-3)


# --- bounds --------------------------------------------------------------------------------------


def test_bounds_are_those_of_the_sums(monkeypatch):
    monkeypatch.setattr(one, "CHUNK", 50)
    key, inner = jr.key(7), 150

    @jax.jit
    def both(theta, ys, xis):
        thetas = (
            jnp.concatenate([jr.normal(k, (2, 2, 50)) for k in jr.split(key, 3)], axis=-1)
            .reshape(4, inner)
            .T
        )

        def own_and_each(theta, ys, xis):
            run = as_run(theta, ys, xis)
            return log_likelihood(TASK, run.theta, run.ys, run.xis), log_likelihoods(
                TASK, thetas, run.ys, run.xis
            )

        own, each = jax.vmap(own_and_each)(theta, ys, xis)
        # 130 are rounded up to three chunks.
        total = jax.nn.logsumexp(each, axis=1)
        truth = lower_log_ratio(own, own, total, inner), upper_log_ratio(own, total, inner)
        return one.contrastive_bounds(theta, ys, xis, 130, key=key), truth

    for found, truth in zip(*both(*few()), strict=True):
        np.testing.assert_allclose(found, truth, rtol=1e-5, atol=1e-4)


def test_standard_errors_see_what_a_group_shares(monkeypatch):
    # Two bounds with known laws: N(0, 1) of every experiment, and the same plus 2 N(0, 1) of every
    # group.
    def known(theta, ys, xis, inner, *, key):
        del ys, xis, inner
        return theta[:, 0, 0], theta[:, 0, 0] + 2 * jr.normal(key)

    monkeypatch.setattr(one, "contrastive_bounds", known)
    means, errors = one.eig_bounds(
        lambda *, key: (jr.normal(key, (2, 2)), 0.0, 0.0), 1000, 1, key=jr.key(8)
    )
    truth = np.asarray([1 / math.sqrt(1008), math.sqrt(4 / 16 + 1 / 1008)])
    assert (np.abs(means) <= ALARM * truth).all()
    # Sixteen groups know their spread to 18%; errors taken over all experiments would be 0.07 where
    # 0.5 is right.
    assert (np.abs(np.log(errors / truth)) < ALARM * 0.18).all()


# --- the whole -----------------------------------------------------------------------------------


def test_fit_descends_and_tells(capsys):
    loss = lambda x, *, key: ((x - 3 - 0.01 * jr.normal(key, (2,))) ** 2).sum()  # noqa: E731
    with jax.numpy_dtype_promotion("standard"):  # optax mixes its step count with floats
        found = one.fit(
            "x", jnp.zeros(2), loss, 205, rate=0.2, clip=1.0, betas=(0.9, 0.99), key=jr.key(0)
        )
    np.testing.assert_allclose(found, 3.0, atol=0.02)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 10
    assert "step 205/205" in lines[-1]


@pytest.mark.slow
def test_main_runs_and_prints_bounds(capsys):
    argv = [
        "--score-steps=2",
        "--policy-steps=1",
        "--batch=4",
        "--inner=40",
        "--outer=16",
        "--seed=1",
    ]
    with jax.numpy_dtype_promotion("standard"):
        one.main(argv)
    *progress, trained, random = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in progress] == ["score", "score", "policy"]
    assert trained.startswith("trained policy:")
    assert random.startswith("random designs:")
    for line in (trained, random):
        lower, lower_se, upper, upper_se = map(float, re.findall(r"-?\d+\.\d+", line))
        assert lower <= math.log(41)
        assert lower < upper < math.inf
        assert lower_se > 0
        assert upper_se > 0
