"""Laws of every design sampler, over one table of constructors."""

import dataclasses
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from scorebed.errors import InvalidValueError, NoDensityError, UnknownNameError
from scorebed.samplers import (
    SAMPLERS,
    LowRank,
    SamplerMixture,
    UniformBox,
    make_sampler,
    paper_sampler,
    register_sampler,
)
from scorebed.samplers.base import DesignSampler
from scorebed.samplers.constrained import ConstrainedDesigns
from scorebed.tasks.base import IID, Gaussian
from scorebed.tasks.constraints import Constraint, ordered
from scorebed.tasks.oracles.linear_gaussian import LinearGaussian
from scorebed.tasks.priors import Prior, standard_normal
from scorebed.tasks.spaces import Box, Quantity, Real, Space

BOUNDED = ("uniform", "switching", "uniform-switching")
# "paper" is one of the others, chosen by the task.
WITH_DENSITY = tuple(name for name in SAMPLERS if name not in ("low-rank", "paper"))
T, D, N = 2, 2, 8192
Z = 4.892  # two-sided false-alarm rate 1e-6


def space_for(name: str) -> Space:
    """A space whose map from u is not the identity, so that a forgotten Jacobian shows."""
    quantities = (Quantity("x"), Quantity("y"))
    return (
        Box(quantities, (-1.0, 2.0), (2.0, 2.5)) if name in BOUNDED else Real(quantities, scale=1.7)
    )


class Designed(IID, Gaussian):
    """A task of any horizon, design space and constraint."""

    horizon: int = eqx.field(static=True)
    designs: Space = eqx.field(static=True)
    constraint: Constraint | None = eqx.field(static=True)
    prior: Prior
    outcomes: tuple[Quantity, ...] = eqx.field(static=True)
    additive_noise: bool = eqx.field(static=True)

    def __init__(self, horizon: int, designs: Space, constraint: Constraint | None = None):
        self.horizon, self.designs, self.constraint = horizon, designs, constraint
        self.prior = standard_normal((Quantity("level"),))
        self.outcomes, self.additive_noise = (Quantity("reading"),), True

    def mean(self, theta, state, xi):
        del state, xi
        return theta

    def scale(self, theta, state, xi):
        del theta, state, xi
        return (1.0,)


def build(name: str, horizon: int = T) -> DesignSampler:
    return make_sampler(name, Designed(horizon, space_for(name)))


def assert_mean(values: np.ndarray, truth: float, *, error: float) -> None:
    """The mean is the truth, and an `error` this large would have been seen with probability
    0.999.
    """
    mean, sem = values.mean(), values.std() / math.sqrt(len(values))
    assert abs(mean - truth) <= Z * sem, f"mean {mean}, truth {truth}, standard error {sem}"
    assert 8 * sem <= error, f"too few draws: standard error {sem}"


@dataclasses.dataclass(frozen=True)
class Draws:
    """Draws in double precision, with the density and score of both ξ and u; finite differences of
    both densities at the first draw; and the density of the probes.
    """

    name: str
    xis: np.ndarray
    us: np.ndarray
    log_jacobian: np.ndarray
    log_q_u: np.ndarray
    score_u: np.ndarray
    log_q_xi: np.ndarray
    score_xi: np.ndarray
    differences_u: np.ndarray
    differences_xi: np.ndarray
    log_q_probes: np.ndarray
    score_probes: np.ndarray


# Two sequences that leave the box and two that touch its edge.
PROBES = np.array(
    [
        [[2.01, 2.2], [0.0, 2.3]],
        [[0.0, 2.2], [0.0, 1.99]],
        [[2.0, 2.2], [0.0, 2.0]],
        [[-1.0, 2.5], [1.0, 2.2]],
    ]
)


@pytest.fixture(scope="module", params=WITH_DENSITY)
def draws(request: pytest.FixtureRequest) -> Draws:
    with jax.enable_x64(True):
        sampler = build(request.param)

        @jax.jit
        @jax.vmap
        def sample(key: jax.Array) -> tuple[jax.Array, ...]:
            xis = sampler.sample(key=key)
            us = sampler.space.unconstrain(xis)
            return xis, us, sampler.space.log_jacobian(us).sum()

        @jax.jit
        @jax.vmap
        def densities(us: jax.Array, xis: jax.Array) -> tuple[tuple[jax.Array, jax.Array], ...]:
            return jax.value_and_grad(sampler.log_prob_unconstrained)(us), jax.value_and_grad(
                sampler.log_prob
            )(xis)

        xis, us, log_jacobian = sample(jr.split(jr.key(0), N))
        (log_q_u, score_u), (log_q_xi, score_xi) = densities(us, xis)

        # Switching designs come within 10⁻⁵ of the edge of the box, where log q bends.
        h_u, h_xi, n = 1e-6, 2e-8 if "switching" in request.param else 1e-6, T * D
        shifts = np.concatenate([np.eye(n), -np.eye(n)]).reshape(-1, T, D)
        (shifted_u, _), (shifted_xi, at_probes) = densities(
            us.at[: 2 * n].set(us[0] + h_u * shifts),
            xis.at[: 2 * n].set(xis[0] + h_xi * shifts).at[2 * n : 2 * n + 4].set(PROBES),
        )
        differences = [
            (s[:n] - s[n : 2 * n]).reshape(T, D) / (2 * h)
            for s, h in ((shifted_u, h_u), (shifted_xi, h_xi))
        ]
        probes = shifted_xi[2 * n : 2 * n + 4], at_probes[2 * n : 2 * n + 4]
    arrays = (xis, us, log_jacobian, log_q_u, score_u, log_q_xi, score_xi, *differences, *probes)
    return Draws(request.param, *(np.asarray(a) for a in arrays))


# A normal density narrower than the sampler's in every direction: ± mean, standard deviation,
# correlation of the two steps.
NARROW = {
    "gaussian": (0.0, 0.85, 0.0),
    "random-scale": (0.0, 0.9, 0.0),
    "ar1": (0.0, 2.0, 0.85),
    "uniform": (0.0, 0.8, 0.0),
    "switching": (5.0, 1.32, 0.0),
    "uniform-switching": (0.0, 0.8, 0.0),
}


def test_importance_identity(draws: Draws):
    """E_q[f(u) / q(u)] = 1 for a normalised f. A density that is off by 15% where f has its mass is
    caught, and a sampler that goes there 15% too rarely.
    """
    mean, scale, rho = NARROW[draws.name]

    def log_normal(z: np.ndarray) -> np.ndarray:
        quadratic = (z[:, 0] ** 2 - 2 * rho * z[:, 0] * z[:, 1] + z[:, 1] ** 2) / (1 - rho**2)
        return -0.5 * quadratic - math.log(2 * math.pi * scale**2 * math.sqrt(1 - rho**2))

    up, down = log_normal((draws.us - mean) / scale), log_normal((draws.us + mean) / scale)
    log_f = (np.logaddexp(up, down) - math.log(2)).sum(axis=1)
    assert_mean(np.exp(log_f - draws.log_q_u), 1.0, error=0.15)


def test_score_averages_zero(draws: Draws):
    """E_q[∇ log q] = 0 in unconstrained coordinates, at every step and coordinate."""
    mean, sem = draws.score_u.mean(0), draws.score_u.std(0) / math.sqrt(N)
    assert (abs(mean) <= Z * sem).all()


def test_sampler_and_density_agree_in_scale(draws: Draws):
    """By parts E_q[u_i ∂_i log q] = −1 for every coordinate: it fails if the sampler's variance is
    not the density's.
    """
    assert_mean((draws.us * draws.score_u).mean((1, 2)), -1.0, error=0.2)


def test_sampler_and_density_agree_in_correlation(draws: Draws):
    """By parts E_q[u_1 ∂_2 log q] = 0 for the two steps of a coordinate: it fails if their
    correlations differ.
    """
    assert_mean((draws.us[:, 0] * draws.score_u[:, 1]).mean(1), 0.0, error=0.3)


def test_densities_of_designs_and_of_u_differ_by_the_jacobian(draws: Draws):
    np.testing.assert_allclose(
        draws.log_q_xi, draws.log_q_u - draws.log_jacobian, rtol=1e-8, atol=1e-8
    )


def test_scores_are_finite_differences_of_the_density(draws: Draws):
    np.testing.assert_allclose(draws.score_u[0], draws.differences_u, rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(draws.score_xi[0], draws.differences_xi, rtol=1e-4, atol=1e-7)


def test_compiled_and_batched_equal_uncompiled(draws: Draws):
    assert draws.xis.shape == (N, T, D)
    with jax.enable_x64(True):
        sampler = build(draws.name)
        xis = sampler.sample(key=jr.split(jr.key(0), N)[0])
        assert xis.dtype == jnp.float64
        np.testing.assert_allclose(draws.xis[0], np.asarray(xis), rtol=1e-12)
        np.testing.assert_allclose(draws.log_q_xi[0], np.asarray(sampler.log_prob(xis)), rtol=1e-9)


def test_no_density_outside_of_a_box_and_a_finite_one_on_its_edge(draws: Draws):
    if draws.name not in BOUNDED:
        assert np.isfinite(draws.log_q_probes).all()
        return
    assert (draws.log_q_probes[:2] == -math.inf).all()
    assert np.isfinite(draws.log_q_probes[2:]).all()
    assert np.isfinite(draws.score_probes).all()


@pytest.mark.parametrize("name", SAMPLERS)
def test_bad_horizon_is_refused(name: str):
    with pytest.raises(InvalidValueError, match="horizon"):
        build(name, 0)


@pytest.mark.parametrize("name", BOUNDED)
def test_bounded_samplers_refuse_an_open_space(name: str):
    with pytest.raises(InvalidValueError, match=r"got Real, expected a Box.*Fix: .*AR1"):
        make_sampler(name, Designed(3, Real((Quantity("x"),))))


def test_unknown_name_offers_the_nearest():
    with pytest.raises(UnknownNameError, match="did you mean 'switching'"):
        make_sampler("switchng", Designed(3, Real((Quantity("x"),))))


@pytest.mark.parametrize("method", ["log_prob", "log_prob_unconstrained"])
def test_low_rank_designs_have_no_density(method: str):
    low_rank = build("low-rank")
    assert isinstance(low_rank, LowRank)
    with pytest.raises(NoDensityError, match=r"LowRank .* lower dimension.*Fix: use AR1"):
        getattr(low_rank, method)(jnp.zeros((T, D)))
    mixture = SamplerMixture((low_rank, build("ar1")))
    with pytest.raises(NoDensityError, match=r"component 1 of a mixture, LowRank: .*Fix"):
        getattr(mixture, method)(jnp.zeros((T, D)))


def test_the_papers_sampler_has_a_name():
    task = Designed(3, Box((Quantity("x"),), (0.0,), (1.0,)))
    assert make_sampler("paper", task) == paper_sampler(task)


def test_a_sampler_obeys_the_constraint_of_its_task_once():
    box = Box((Quantity("x"),), (0.0,), (1.0,))
    free, task = Designed(4, box), Designed(4, box, ordered(gap=0.1))
    for name in ("uniform", "paper"):
        sampler = make_sampler(name, task)
        assert sampler == ConstrainedDesigns(make_sampler(name, free), task.feasible)
        assert task.feasible.holds(sampler.sample(key=jr.key(0)))


def test_a_registered_sampler_is_made_by_its_name(monkeypatch):
    monkeypatch.setitem(SAMPLERS, "left-half", None)  # taken out again at the end

    @register_sampler("left-half")
    def left_half(task):
        (low,), (high,) = task.designs.limits
        half = Box(task.designs.quantities, (low,), ((low + high) / 2,))
        return UniformBox(task.horizon, half)

    task = Designed(5, Box((Quantity("x"),), (0.0,), (1.0,)))
    assert (make_sampler("left-half", task).sample(key=jr.key(0)) <= 0.5).all()
    with pytest.raises(InvalidValueError, match="which is built in"):
        register_sampler("ar1")


def test_a_name_may_carry_the_settings_of_its_sampler():
    task = LinearGaussian()
    sampler = make_sampler("ar1(low=0.5, high=3)", task)
    assert (sampler.low, sampler.high, sampler.rho_low) == (0.5, 3.0, 0.7)
    assert make_sampler("switching (level=3)", task).level == 3.0
    with pytest.raises(UnknownNameError, match=r"setting of AR1.*'high'"):
        make_sampler("ar1(hihg=3)", task)
    with pytest.raises(InvalidValueError, match="numbers by name"):
        make_sampler("ar1(low=small)", task)
    with pytest.raises(InvalidValueError, match="it has no settings"):
        make_sampler("paper(low=3)", task)
    with pytest.raises(InvalidValueError, match="range of a random scale"):
        make_sampler("ar1(low=9)", task)
