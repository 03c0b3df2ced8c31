"""The oracles against independent truths: differentiation, quadrature, sampling, and numbers worked
out elsewhere.
"""

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from scorebed.errors import InvalidValueError, ScorebedError
from scorebed.rollout import log_likelihood, log_likelihoods, simulate_outcomes
from scorebed.tasks import ORACLE_TASKS
from scorebed.tasks.base import IID
from scorebed.tasks.oracles.closed_form import ClosedForm
from scorebed.tasks.oracles.fading_noise import FadingNoise
from scorebed.tasks.oracles.linear_gaussian import LinearGaussian
from scorebed.tasks.oracles.linear_markov import LinearMarkov
from scorebed.tasks.oracles.projection import Projection
from scorebed.tasks.oracles.sign import Sign

pytestmark = pytest.mark.usefixtures("float64")

# Away from the defaults, so that no constant of value one hides a mistake.
OPTIONS = {
    "linear-gaussian": {"mean": (0.4,), "covariance": ((2.0,),), "noise": 0.7},
    "linear-gaussian-2d": {},
    "linear-gaussian-3d": {},
    "projection": {"prior_scale": 1.5, "noise": 0.8, "horizon": 3},
    "linear-markov": {"prior_scale": 1.3, "noise": 0.6},
    "sign": {"noise": 1.4},
    "fading-noise": {"prior_scale": 1.6, "noise": 0.9},
}
ORACLES: dict[str, ClosedForm] = {
    name: make(**OPTIONS[name]) for name, make in ORACLE_TASKS.items()
}
TRAJECTORIES = 50_000


class Answers(NamedTuple):
    """The closed form of one history, and the same by other ways."""

    ys: Array
    xis: Array
    marginal: Array
    score: tuple[Array, Array]
    score_by_autodiff: tuple[Array, Array]
    score_of_reversed: tuple[Array, Array]
    log_likelihoods: Array  # over a grid of parameters
    gain: Array
    eig: Array
    eig_gradient: Array
    eig_gradient_by_autodiff: Array


class Samples(NamedTuple):
    """Many trajectories of one static design."""

    log_ratio: Array  # log p(y | θ, ξ) − log p(y | ξ)
    gain: Array
    score: tuple[Array, Array]


def parameter_grid(task: ClosedForm) -> tuple[np.ndarray, np.ndarray]:
    """Points z and weights with Σ w f(z) = E[f(z)], z ~ N(0, I), to rounding for smooth f; two
    points for a sign.
    """
    if isinstance(task, Sign):
        return np.asarray([[-1.0], [1.0]]), np.asarray([0.5, 0.5])
    k = task.prior.dim
    axis = np.linspace(-8, 8, {1: 401, 2: 81, 3: 51}[k])
    z = np.stack(np.meshgrid(*[axis] * k), axis=-1).reshape(-1, k)
    weights = np.exp(-0.5 * (z**2).sum(1))
    return z, weights / weights.sum()


@functools.cache
def answers(name: str) -> Answers:
    @eqx.filter_jit
    def evaluate(task: ClosedForm, us: Array, z: Array, noise: Array, grid: Array) -> Answers:
        xis = task.designs.constrain(us)
        ys = simulate_outcomes(task, task.prior.from_latent(z), xis, noise)
        both_ways = jax.vmap(task.score)(jnp.stack([ys, ys[::-1]]), jnp.stack([xis, xis[::-1]]))
        forward, backward = (jax.tree.map(lambda a, i=i: a[i], both_ways) for i in (0, 1))
        return Answers(
            ys,
            xis,
            task.marginal_log_prob(ys, xis),
            forward,
            jax.grad(task.marginal_log_prob, (0, 1))(ys, xis),
            backward,
            log_likelihoods(task, jax.vmap(task.prior.from_latent)(grid), ys, xis),
            task.information_gain(ys, xis),
            task.eig(xis),
            task.eig_gradient(xis),
            jax.grad(task.eig)(xis),
        )

    task = ORACLES[name]
    random = np.random.default_rng(3)
    us, noise = (
        random.normal(size=(task.horizon, task.designs.dim)),
        random.normal(size=(task.horizon, 1)),
    )
    z, grid = random.normal(size=task.prior.dim), parameter_grid(task)[0]
    return jax.tree.map(np.asarray, evaluate(task, *map(jnp.asarray, (us, z, noise, grid))))


@functools.cache
def samples(name: str) -> Samples:
    @eqx.filter_jit
    def evaluate(task: ClosedForm, xis: Array, zs: Array, noises: Array) -> Samples:
        def single(z: Array, noise: Array) -> Samples:
            theta = task.prior.from_latent(z)
            ys = simulate_outcomes(task, theta, xis, noise)
            ratio = log_likelihood(task, theta, ys, xis) - task.marginal_log_prob(ys, xis)
            return Samples(ratio, task.information_gain(ys, xis), task.score(ys, xis))

        return jax.vmap(single)(zs, noises)

    task = ORACLES[name]
    random = np.random.default_rng(4)
    zs = random.normal(size=(TRAJECTORIES, task.prior.dim))
    noises = random.normal(size=(TRAJECTORIES, task.horizon, 1))
    return jax.tree.map(
        np.asarray, evaluate(task, *map(jnp.asarray, (answers(name).xis, zs, noises)))
    )


def assert_mean(sample: np.ndarray, truth: float) -> None:
    """|mean − truth| ≤ 4.892 sd/√N over the first axis: one false alarm in a million; rounding for
    constants.
    """
    error = 4.892 * sample.std(0) / len(sample) ** 0.5
    np.testing.assert_array_less(np.abs(sample.mean(0) - truth), error + 1e-10)


def hermite(*counts: int) -> tuple[list[Array], np.ndarray]:
    """Nodes of each independent N(0, 1) and weights of their Gauss–Hermite product rule."""
    rules = [np.polynomial.hermite_e.hermegauss(n) for n in counts]
    nodes = np.meshgrid(*(x for x, _ in rules), indexing="ij")
    weights = functools.reduce(np.multiply.outer, (w / w.sum() for _, w in rules))
    return [jnp.asarray(x.ravel()) for x in nodes], weights.ravel()


@pytest.fixture(params=ORACLES)
def oracle(request: pytest.FixtureRequest) -> str:
    return request.param


def test_the_score_is_the_derivative_of_the_marginal(oracle: str) -> None:
    answer = answers(oracle)
    for closed, differentiated in zip(answer.score, answer.score_by_autodiff, strict=True):
        np.testing.assert_allclose(closed, differentiated, rtol=1e-8, atol=1e-8)


def test_the_marginal_is_the_mean_of_the_likelihood(oracle: str) -> None:
    """log p(y | ξ) = log E_{p(θ)}[p(y | θ, ξ)], by quadrature over θ."""
    answer, (_, weights) = answers(oracle), parameter_grid(ORACLES[oracle])
    top = answer.log_likelihoods.max()
    assert top + np.log(np.exp(answer.log_likelihoods - top) @ weights) == pytest.approx(
        float(answer.marginal), abs=1e-7
    )


def test_the_gain_is_the_fall_of_entropy(oracle: str) -> None:
    """H[prior] − H[posterior] of this very history = E_{p(θ | y)}[log p(θ | y)] − E_{p(θ)}[log
    p(θ)], by quadrature.
    """
    task, answer, (z, weights) = ORACLES[oracle], answers(oracle), parameter_grid(ORACLES[oracle])
    log_ratio = answer.log_likelihoods - answer.marginal  # log p(θ | y) / p(θ)
    log_prior = (
        np.full(len(z), -math.log(2)) if isinstance(task, Sign) else -0.5 * (z**2).sum(1)
    )  # + constants, cancel
    posterior = weights * np.exp(log_ratio)
    gain = posterior @ (log_ratio + log_prior) - weights @ log_prior
    assert gain == pytest.approx(float(answer.gain), abs=1e-7)


def test_the_eig_is_the_mean_gain(oracle: str) -> None:
    """Catches an EIG wrong by 0.01 nats where gains vary; where they do not, any error."""
    assert_mean(samples(oracle).gain, float(answers(oracle).eig))


def test_the_eig_is_the_mean_log_ratio(oracle: str) -> None:
    """EIG = E[log p(y | θ, ξ) − log p(y | ξ)]. 50,000 trajectories catch an error of 0.04 of the
    ratio's spread.
    """
    assert_mean(samples(oracle).log_ratio, float(answers(oracle).eig))


def test_scores_average_zero(oracle: str) -> None:
    """E_{y | ξ}[s] = 0 in y and in ξ. Catches a bias of 0.04 of the score's spread."""
    for part in samples(oracle).score:
        assert_mean(part, 0.0)


def test_the_eig_gradient_is_its_derivative(oracle: str) -> None:
    answer = answers(oracle)
    np.testing.assert_allclose(
        answer.eig_gradient, answer.eig_gradient_by_autodiff, rtol=1e-8, atol=1e-10
    )


def test_scores_of_iid_tasks_are_equivariant(oracle: str) -> None:
    """Histories in reverse give scores in reverse, for iid tasks and for no other."""
    answer = answers(oracle)
    same = [
        np.allclose(a[::-1], b, rtol=1e-9)
        for a, b in zip(answer.score, answer.score_of_reversed, strict=True)
    ]
    assert all(same) == isinstance(ORACLES[oracle], IID)


def test_single_precision_agrees(oracle: str) -> None:
    answer, task = answers(oracle), ORACLES[oracle]
    with jax.enable_x64(False):
        data = jnp.asarray(answer.ys, jnp.float32), jnp.asarray(answer.xis, jnp.float32)
        marginal, score, eig = jax.jit(
            lambda ys, xis: (task.marginal_log_prob(ys, xis), task.score(ys, xis), task.eig(xis))
        )(*data)
    assert eig.dtype == marginal.dtype == jnp.float32
    np.testing.assert_allclose([marginal, eig], [answer.marginal, answer.eig], rtol=1e-5)
    for a, b in zip(score, answer.score, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


BEST = {
    "linear-gaussian": [2.0, -2.0, 2.0],
    "projection": [0.0, np.pi / 3, 2 * np.pi / 3],
    "linear-markov": [-2.0, 2.0, 2.0],
    "sign": [2.0, 2.0, -2.0],
    "fading-noise": [1.0, 1.0, 1.0],
}


@pytest.mark.parametrize("name", BEST)
def test_the_optimum_is_reached_and_never_passed(name: str) -> None:
    task = ORACLES[name]
    us = 2 * np.random.default_rng(0).normal(size=(1000, task.horizon))
    bound = getattr(task, "bound", np.pi)
    designs = np.concatenate([[BEST[name]], bound * np.tanh(us)])[..., None]
    values = np.asarray(jax.jit(jax.vmap(task.eig))(jnp.asarray(designs)))
    assert task.optimal_eig() == pytest.approx(float(values[0]), rel=1e-9)
    assert values[1:].max() <= values[0] + 1e-12
    assert values[1:].max() > 0.95 * values[0]  # the bound is one that designs come near


def test_no_closed_optimum_is_an_error() -> None:
    with pytest.raises(ScorebedError, match=r"got 2 coefficients, expected one.*Fix:"):
        ORACLES["linear-gaussian-2d"].optimal_eig()


def test_the_public_task_has_its_known_optimum() -> None:
    """½ log(1 + (τ²/σ²) T B²) with τ = σ = 1, T = 3, B = 2."""
    assert LinearGaussian().optimal_eig() == pytest.approx(0.5 * math.log(13))


# Golden numbers, worked out independently.


class Adaptive(NamedTuple):
    """Expectations over one policy: information, its gradient, and what the Stein and Fisher terms
    contribute to it.
    """

    information: np.ndarray
    gradient: np.ndarray
    stein: np.ndarray
    fisher: np.ndarray


@functools.cache
def two_adaptive_steps() -> Adaptive:
    """ξ₁ = φ₁, ξ₂ = φ₂ + κ y₁ at (1, ½, ½), with τ = σ = 1.

    In u = (θ + ε₁)/√2 and v = (θ − ε₁)/√2, also N(0, 1), everything but y₁ = √2 u is polynomial:
    few nodes are exact."""
    task = LinearGaussian(horizon=2)
    (u, v, noise), weights = hermite(150, 8, 8)
    thetas, noises = (u + v) / 2**0.5, jnp.stack([(u - v) / 2**0.5, noise], axis=1)

    def trajectory(phi: Array, theta: Array, noise: Array) -> tuple[Array, Array]:
        theta = theta[None]
        y1 = task.outcome(theta, None, phi[:1], noise[:1])
        xi2 = phi[1:2] + phi[2:] * y1
        return jnp.stack([y1, task.outcome(theta, None, xi2, noise[1:])]), jnp.stack([phi[:1], xi2])

    def single(phi: Array, theta: Array, noise: Array) -> Adaptive:
        (ys, xis), pull_back = jax.vjp(lambda phi: trajectory(phi, theta, noise), phi)
        gain, gradient = jax.value_and_grad(
            lambda phi: task.information_gain(*trajectory(phi, theta, noise))
        )(phi)
        s_y, s_xi = task.score(ys, xis)
        # The likelihood term is zero: the noise is additive.
        return Adaptive(
            gain, gradient, pull_back((-s_y, 0 * s_xi))[0], pull_back((0 * s_y, -s_xi))[0]
        )

    phi = jnp.asarray([1.0, 0.5, 0.5])
    each = jax.jit(jax.vmap(single, (None, 0, 0)))(phi, thetas, noises)
    return jax.tree.map(lambda a: weights @ np.asarray(a), each)


GRADIENT = [0.4627018366, 0.1491926537, 0.2674006933]


def test_golden_adaptive_information() -> None:
    result = two_adaptive_steps()
    assert result.information == pytest.approx(0.4817426542, abs=2e-10)
    np.testing.assert_allclose(result.gradient, GRADIENT, atol=2e-10)


def test_golden_adaptive_gradient_by_scores() -> None:
    """Stein and Fisher terms with the exact score give the gradient; without the Fisher term ∂φ₁ is
    14% wrong.
    """
    result = two_adaptive_steps()
    np.testing.assert_allclose(result.fisher, [-0.0668501733, 0.0, 0.0], atol=2e-10)
    np.testing.assert_allclose(result.stein + result.fisher, GRADIENT, atol=2e-10)
    assert result.stein[0] == pytest.approx(0.52955, abs=1e-5)


def test_scalar_linear_gaussian() -> None:
    """EIG, gradient, score and irreducible losses of marginal score matching, for one step."""
    tau, sigma = 1.3, 0.8
    task = LinearGaussian(covariance=((tau**2,),), noise=sigma, horizon=1)
    designs = np.asarray([0.3, 1.0, 1.7])
    (z, noise), weights = hermite(10, 10)

    def single(xi: Array, z: Array, noise: Array) -> tuple[Array, ...]:
        theta = task.prior.from_latent(z[None])
        y = task.outcome(theta, None, xi, noise[None])
        s_y, s_xi = task.score(y[None], xi[None])
        d_y, d_xi = jax.grad(lambda y, xi: task.log_prob(y, theta, None, xi), (0, 1))(y, xi)
        return y[0], s_y[0, 0], s_xi[0, 0], (s_y[0, 0] - d_y[0]) ** 2, (s_xi[0, 0] - d_xi[0]) ** 2

    @jax.jit
    def evaluate(designs: Array) -> tuple[Array, ...]:
        grid = jax.vmap(jax.vmap(single, (None, 0, 0)), (0, None, None))(designs[:, None], z, noise)
        xis = designs[:, None, None]
        return *grid, jax.vmap(task.eig)(xis), jax.vmap(task.eig_gradient)(xis)[:, 0, 0]

    y, s_y, s_xi, loss_y, loss_xi, eig, gradient = map(np.asarray, evaluate(jnp.asarray(designs)))
    v = sigma**2 + tau**2 * designs**2
    V = tau**2 * sigma**2 / v
    np.testing.assert_allclose(eig, 0.5 * np.log(1 + (tau * designs / sigma) ** 2), rtol=1e-12)
    np.testing.assert_allclose(gradient, tau**2 * designs / v, rtol=1e-12)
    xi, v_of = designs[:, None], v[:, None]
    np.testing.assert_allclose(s_y, -y / v_of, atol=1e-12)
    np.testing.assert_allclose(
        s_xi, -(tau**2) * xi / v_of + tau**2 * xi * y**2 / v_of**2, atol=1e-12
    )
    np.testing.assert_allclose(loss_y @ weights, designs**2 * V / sigma**4, rtol=1e-10)
    irreducible = (V * (sigma**2 - tau**2 * designs**2) ** 2 / v + 2 * designs**2 * V**2) / sigma**4
    np.testing.assert_allclose(loss_xi @ weights, irreducible, rtol=1e-10)


def test_golden_sign() -> None:
    task = Sign(horizon=1)
    eig, gradient = jax.jit(lambda xis: (task.eig(xis), task.eig_gradient(xis)))(jnp.ones((1, 1)))
    assert float(eig) == pytest.approx(0.3368308203, abs=1e-10)
    assert float(gradient[0, 0]) == pytest.approx(0.4495995, abs=1e-7)


def test_fading_noise_terms() -> None:
    """The likelihood term is +1 for every sample, the Stein term averages −σ²e^{−2ξ}/v, and their
    sum is τ²/v.
    """
    tau, sigma = 1.3, 0.8
    task = FadingNoise(prior_scale=tau, noise=sigma, horizon=1)
    designs = np.asarray([-0.7, 0.4])
    (z, noise), weights = hermite(10, 10)

    def terms(xi: Array, z: Array, noise: Array) -> tuple[Array, Array]:
        theta = task.prior.from_latent(z[None])

        def outcome(xi: Array) -> Array:
            return task.outcome(theta, None, xi, noise[None])

        likelihood = jax.grad(lambda xi: task.log_prob(outcome(xi), theta, None, xi))(xi)
        y, slope = jax.jvp(outcome, (xi,), (jnp.ones(1),))
        return likelihood[0], -slope[0] * task.score(y[None], xi[None])[0][0, 0]

    @jax.jit
    def evaluate(designs: Array) -> tuple[Array, Array, Array]:
        grid = jax.vmap(jax.vmap(terms, (None, 0, 0)), (0, None, None))(designs[:, None], z, noise)
        return *grid, jax.vmap(task.eig_gradient)(designs[:, None, None])[:, 0, 0]

    likelihood, stein, total = map(np.asarray, evaluate(jnp.asarray(designs)))
    v = tau**2 + sigma**2 * np.exp(-2 * designs)
    np.testing.assert_allclose(likelihood, 1.0, rtol=1e-12)
    np.testing.assert_allclose(stein @ weights, -(sigma**2) * np.exp(-2 * designs) / v, rtol=1e-10)
    np.testing.assert_allclose(total, tau**2 / v, rtol=1e-10)


def test_projection_has_an_interior_optimum() -> None:
    """EIG = ½ log(1 + 2ρ + ρ² sin²Δ) for two steps: largest at Δ = π/2, where it is log(1 + ρ)."""
    task = Projection(prior_scale=1.5, noise=0.8)
    rho, angles = (1.5 / 0.8) ** 2, np.linspace(0, np.pi, 13)
    xis = jnp.asarray(np.stack([angles + 0.3, np.full(13, 0.3)], axis=1)[..., None])
    eigs, gradients = jax.jit(
        lambda xis: (jax.vmap(task.eig)(xis), jax.vmap(task.eig_gradient)(xis))
    )(xis)
    np.testing.assert_allclose(
        eigs, 0.5 * np.log(1 + 2 * rho + rho**2 * np.sin(angles) ** 2), rtol=1e-12
    )
    assert int(np.argmax(eigs)) == 6
    assert float(eigs[6]) == pytest.approx(math.log(1 + rho)) == task.optimal_eig()
    np.testing.assert_allclose(gradients[6], 0.0, atol=1e-12)


def test_information_on_one_parameter_obeys_the_chain_rule() -> None:
    """I(θ₁; y) = I(θ₁, θ₂; y) − I(θ₂; y | θ₁), where the last is a scalar problem with the
    conditional prior.
    """
    (a, b), (_, d) = covariance = ((1.0, 0.6), (0.6, 2.0))
    task = LinearGaussian(mean=(0.5, -1.0), covariance=covariance, noise=0.8)
    xis = np.random.default_rng(0).normal(size=(3, 2))
    of_first, of_both = jax.jit(lambda xis: (task.eig_of(xis, parameter=0), task.eig(xis)))(
        jnp.asarray(xis)
    )
    conditional = 0.5 * math.log1p((d - b**2 / a) * (xis[:, 1] ** 2).sum() / 0.8**2)
    assert float(of_first) == pytest.approx(float(of_both) - conditional)


@pytest.mark.parametrize(("dim", "scale"), [(1, 1e6), (2, 1e-6), (3, 1e6)])
def test_units_do_not_matter(dim: int, scale: float) -> None:
    """EIG in single precision is unchanged when parameters, or outcomes, are measured in other
    units.
    """
    random = np.random.default_rng(0)
    root = random.normal(size=(dim, dim))
    covariance, mean = root @ root.T + np.eye(dim), (0.0,) * dim
    covariance, xis = (
        0.5 * (covariance + covariance.T),
        random.normal(size=(3, dim)).astype(np.float32),
    )

    def eig(covariance: np.ndarray, xis: np.ndarray, noise: float) -> float:
        with jax.enable_x64(False):
            task = LinearGaussian(mean=mean, covariance=covariance.tolist(), noise=noise)
            return float(jax.jit(task.eig)(jnp.asarray(xis)))

    truth = eig(covariance, xis, 1.0)
    assert eig(covariance * scale**2, xis / np.float32(scale), 1.0) == pytest.approx(
        truth, rel=1e-5
    )
    assert eig(covariance, xis * np.float32(scale), scale) == pytest.approx(truth, rel=1e-5)


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (LinearGaussian, "linear-Gaussian"),
        (Projection, "projection"),
        (LinearMarkov, "linear Markov"),
        (Sign, "sign"),
        (FadingNoise, "fading-noise"),
    ],
)
@pytest.mark.parametrize("options", [{"horizon": 0}, {"noise": 0.0}, {"noise": -1.0}])
def test_bad_arguments_are_refused(
    make: Callable[..., ClosedForm], what: str, options: dict[str, float]
) -> None:
    with pytest.raises(InvalidValueError, match=rf"a {what} task, got .*Fix:"):
        make(**options)
