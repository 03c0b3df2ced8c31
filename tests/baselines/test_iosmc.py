"""IO-SMC²: its particles against exact posteriors, its kernel against importance sampling, its
count against the paper's.
"""

import dataclasses
import itertools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from jax.scipy.stats import norm
from jaxtyping import Array, Float, Scalar

from scorebed.baselines.iosmc.conditional_smc import sweep
from scorebed.baselines.iosmc.ibis import ibis
from scorebed.baselines.iosmc.training import (
    DegenerateParticlesError,
    IOSMCSettings,
    log_policy,
    realised_nle,
    start_iosmc,
    train_iosmc,
    worst_iteration,
    worst_start,
)
from scorebed.errors import BudgetExceededError, InvalidValueError
from scorebed.methods.reading import read_method
from scorebed.nle import IOSMC2
from scorebed.policies import make_policy
from scorebed.policies.base import StochasticPolicy
from scorebed.presets.reader import preset_values
from scorebed.rollout import simulate, simulate_outcomes
from scorebed.runs.serialisation import decode_leaves, encode_leaves
from scorebed.tasks import ORACLE_TASKS, make_task
from scorebed.tasks.base import History, Task, require_data_states
from scorebed.tasks.oracles.linear_markov import LinearMarkov
from scorebed.tasks.priors import Prior, standard_normal
from scorebed.tasks.spaces import Quantity, Real, Space
from scorebed.training.fit import NonFiniteError, Stop

Z_ALARM = 4.892  # a false alarm in a million


class Feedback(StochasticPolicy):
    """ξ_t = constrain(a + κ y_{t−1} + σ ε): the smallest policy that looks at its history."""

    offset: Float[Array, " 1"]
    feedback: Float[Array, " 1"]
    log_std: Float[Array, " 1"]
    space: Space = eqx.field(static=True)

    def sample_noise(self, horizon, *, key):
        return jr.normal(key, (horizon, 1))

    def init(self):
        return jnp.zeros(1)

    def design(self, memory, noise):
        return self.space.constrain(
            self.offset + self.feedback * memory + jnp.exp(self.log_std) * noise
        )

    def update(self, memory, xi, y):
        del memory, xi
        return y

    def log_prob(self, xi: Float[Array, " 1"], memory: Float[Array, " 1"]) -> Scalar:
        u = self.space.unconstrain(xi)
        density = norm.logpdf(u, self.offset + self.feedback * memory, jnp.exp(self.log_std))
        return (density - self.space.log_jacobian(u)).sum()


def feedback(task: Task, offset: float = 0.3, gain: float = 0.4, std: float = 0.5) -> Feedback:
    return Feedback(
        jnp.asarray([offset]), jnp.asarray([gain]), jnp.log(jnp.asarray([std])), task.designs
    )


def assert_mean(samples, truth, bias=0.0):
    samples = np.asarray(samples, np.float64)
    error = np.abs(samples.mean(0) - np.asarray(truth, np.float64))
    allowed = Z_ALARM * samples.std(0, ddof=1) / math.sqrt(len(samples)) + bias
    assert np.all(error <= allowed), (error, allowed)


def equal(a, b):
    return all(jax.tree.leaves(jax.tree.map(lambda x, y: np.array_equal(x, y), a, b)))


# --- IBIS ---------------------------------------------------------------------------------------

REPEATS, PARTICLES = 512, 256


@pytest.fixture(scope="module")
def filters():
    """threshold ↦ (task, independent runs of IBIS on one history, its exact posterior, its exact
    evidence).
    """
    task = ORACLE_TASKS["linear-gaussian-2d"](noise=1.5, horizon=4)
    random = np.random.default_rng(3)
    z, u, noise = (
        jnp.asarray(random.normal(size=size), jnp.float32) for size in ((2,), (4, 2), (4, 1))
    )

    @jax.jit
    def run(threshold, key):
        xis = task.designs.constrain(u)
        ys = simulate_outcomes(task, task.prior.from_latent(z), xis, noise)
        many = [jnp.broadcast_to(a, (REPEATS, *a.shape)) for a in (ys, xis)]
        found = ibis(task, *many, particles=PARTICLES, threshold=threshold, key=key)
        return found, task.posterior(ys, xis), task.marginal_log_prob(ys, xis)

    return lambda threshold: (task, *run(jnp.asarray(threshold), jr.key(5)))


@pytest.fixture(
    scope="module",
    params=[0.0, 0.75, 2.0],
    ids=["never moves", "moves when degenerate", "always moves"],
)
def filtered(request, filters):
    return request.param, *filters(request.param)


def test_the_evidence_is_unbiased(filtered):
    # The standard error is about 1%. A forgotten normalisation of the weights is off by a factor,
    # and so is an evidence that is taken from particles before they were resampled.
    _, _, found, _, truth = filtered
    assert_mean(np.exp(np.asarray(found.log_evidence) - float(truth)), 1.0, 2 / PARTICLES)


def test_particles_are_the_exact_posterior(filtered):
    # The standard error is about 1% of the posterior's scale. Moves that forget the prior carry the
    # mean away by more than that scale, moves that compare with the likelihood of where a particle
    # was before change the covariance by 10%.
    _, task, found, exact, _ = filtered
    weights = np.exp(np.asarray(found.particles.log_weights, np.float64))
    theta = np.asarray(
        jax.jit(jax.vmap(jax.vmap(task.prior.from_latent, 1, 1)))(found.particles.z), np.float64
    )
    mean = np.einsum("rkm,rm->rk", theta, weights)
    away = theta - mean[:, :, None]
    covariance = np.einsum("rim,rjm,rm->rij", away, away, weights)
    scale = np.sqrt(np.diag(exact.covariance))
    # Self-normalised weights bias by 1/ESS: without moves, the effective sample size is what is
    # left.
    size = 1 / (weights**2).sum(1).mean()
    assert_mean(mean, exact.mean, scale / size)
    assert_mean(covariance, exact.covariance, 3 * np.outer(scale, scale) / size)


def test_moves_are_counted_where_they_happen(filtered):
    threshold, task, found, _, _ = filtered
    T = task.horizon
    moves = np.asarray(found.moves)
    if threshold == 0:
        assert np.all(moves == 0)
    elif threshold > 1:
        assert np.all(moves == T * (T + 1) // 2)
    else:
        assert 0 < moves.mean() < T * (T + 1) // 2


# --- conditional SMC ----------------------------------------------------------------------------

# Few trajectories and particles, so that a fault shows: a kernel resamples at most steps, and moves
# at some.
SMALL = IOSMCSettings(
    trajectories=4,
    particles=12,
    moves=1,
    batch=2,
    penalty=0.1,
    inner_threshold=0.4,
    outer_threshold=0.9,
)
CHAINS, KERNELS, LAST = 1024, 8, 3


@pytest.fixture(scope="module")
def kernel():
    """(task, policy, passes without tempering, chains of passes with it): unconditional at first,
    then 7 kernels.
    """
    task = LinearMarkov(horizon=3, bound=1.5)
    policy = feedback(task, gain=1.0)
    nothing = start_iosmc(task, policy, optax.sgd(0.0)).optimiser.reference

    @jax.jit
    def run(constants, key):
        def step(reference, data):
            n, key = data
            swept = sweep(task, policy, constants, reference, n > 0, key=key)
            return swept.reference, swept

        def chain(key):
            return jax.lax.scan(step, nothing, (jnp.arange(KERNELS), jr.split(key, KERNELS)))[1]

        return jax.lax.map(chain, jr.split(key, CHAINS), batch_size=CHAINS // 4)

    untempered = dataclasses.replace(SMALL, tempering=0.0)
    return (
        task,
        policy,
        *(run(jax.tree.map(jnp.asarray, s), jr.key(1)) for s in (untempered, SMALL)),
    )


def features(trajectories):
    """Σξ², Σ(ξ_t − ξ_{t−1})², log(1 + Σy²), Σ ξ_t tanh y_{t−1} and tanh y_1 y_3: tails of y would
    drown the rest.
    """
    ys, xis = (np.asarray(a, np.float64)[..., 0] for a in (trajectories.ys, trajectories.xis))
    slew = (np.diff(xis, axis=-1, prepend=0.0) ** 2).sum(-1)
    follow = (xis[..., 1:] * np.tanh(ys[..., :-1])).sum(-1)
    sizes = [(xis**2).sum(-1), slew, np.log1p((ys**2).sum(-1))]
    return np.stack([*sizes, follow, np.tanh(ys[..., 0] * ys[..., 2])], -1)


def assert_means_agree(a, b):
    """Of independent rows."""
    error = np.abs(a.mean(0) - b.mean(0))
    allowed = Z_ALARM * np.sqrt(a.var(0) / len(a) + b.var(0) / len(b))
    assert np.all(error <= allowed), (error, allowed)


def test_without_tempering_trajectories_are_rollouts_of_the_policy(kernel):
    # Standard errors of about 1% of the standard deviations. If θ ignores the weights of its
    # particles, y₁y₃ is 12 of them off.
    task, policy, plain, _ = kernel
    runs = jax.jit(jax.vmap(lambda k: simulate(task, policy, key=k)))(jr.split(jr.key(3), 16384))
    # Weights stay equal, so nothing is resampled, and all but the references are independent.
    swept = features(plain.trajectories)[:, :, 1:]
    assert_means_agree(swept.reshape(-1, swept.shape[-1]), features(runs))


def test_the_kernel_leaves_its_target_unchanged(kernel):
    # Means under the tempered target: by importance sampling from passes without tempering, and
    # from the references of chains with only four trajectories. Memories that stay behind when
    # their trajectories are resampled are 16 standard errors off, weights that are kept after
    # resampling 10; it also catches a lost reference, no penalty, and the reward's sign turned.
    _, _, plain, tempered = kernel
    gain = np.asarray(plain.gains, np.float64)[:, :, 1:, None]
    values = np.concatenate([features(plain.trajectories)[:, :, 1:], np.log1p(gain)], -1)
    reward = SMALL.tempering * (gain - SMALL.penalty * values[..., 1:2])
    weights = np.exp(reward - reward.max())
    target = (weights * values).sum((0, 1, 2)) / weights.sum()
    # A self-normalised mean varies like the mean of these.
    weighted = target + (weights * (values - target)).mean((1, 2)) / weights.mean()
    # A chain starts with unconditional SMC, which is biased, and forgets it within a few kernels.
    chosen = np.arange(CHAINS)[:, None], np.arange(KERNELS)[None], np.asarray(tempered.chosen)
    gains = np.log1p(np.asarray(tempered.gains, np.float64)[chosen])
    found = np.concatenate([features(tempered.trajectories)[chosen], gains[..., None]], -1)
    assert_means_agree(found[:, -LAST:].mean(1), weighted)


def test_the_reference_takes_its_particles_along(kernel):
    # The information gain of the reference is computed anew in the next pass, from its seeds: to
    # the last bit the same.
    *_, tempered = kernel
    chosen = np.take_along_axis(
        np.asarray(tempered.gains), np.asarray(tempered.chosen)[..., None], -1
    )[..., 0]
    assert np.array_equal(chosen[:, :-1], tempered.gains[:, 1:, 0])
    assert len(np.unique(chosen)) > CHAINS


def test_moves_within_a_pass_are_about_all_outcomes_so_far():
    # The gain of every step is that of the exact posterior, up to the noise of 256 particles (a
    # tenth of a nat; its mean is off by about 1/M). Particles that move without the outcome just
    # seen fall back to the posterior before it, and gain it once more: 20 standard errors.
    task = LinearMarkov(horizon=3, bound=1.5)
    settings = IOSMCSettings(
        trajectories=512, particles=256, moves=3, batch=2, tempering=0.0, inner_threshold=2.0
    )
    policy = feedback(task, offset=1.0, gain=0.0)
    nothing = start_iosmc(task, policy, optax.sgd(0.0)).optimiser.reference
    constants = jax.tree.map(jnp.asarray, settings)
    swept = eqx.filter_jit(sweep)(
        task, policy, constants, nothing, jnp.asarray(False), key=jr.key(7)
    )
    past = swept.trajectories
    ys, xis = (np.asarray(a, np.float64)[..., 0] for a in (past.ys, past.xis))
    increments = ys - task.memory * np.concatenate([np.zeros((len(ys), 1)), ys[:, :-1]], 1)
    variance = np.full(len(ys), task.prior_scale**2)
    mean, exact = np.zeros(len(ys)), np.zeros(len(ys))
    for t in range(task.horizon):
        v = 1 / (1 / variance + xis[:, t] ** 2 / task.noise**2)
        m = v * (mean / variance + xis[:, t] * increments[:, t] / task.noise**2)
        exact += 0.5 * (np.log(variance / v) + (v + (m - mean) ** 2) / variance - 1)
        mean, variance = m, v
    assert_mean(np.asarray(swept.gains, np.float64) - exact, 0.0, 3 / settings.particles)


# --- score climbing -----------------------------------------------------------------------------

TASK = LinearMarkov(horizon=3, bound=2.0)
CLIMB = IOSMCSettings(trajectories=64, particles=32, tempering=1.0, batch=32, learning_rate=0.05)
ADAM = optax.adam(CLIMB.learning_rate)


def bill(task, settings, iterations):
    N, M, R, S = settings.trajectories, settings.particles, settings.moves, settings.kernels
    return IOSMC2(T=task.horizon, K=iterations, N=N, M=M, R=R, S=S)


def climb(**options):
    options = {"iterations": 4, "optimiser": ADAM, "key": jr.key(8)} | options
    return train_iosmc(TASK, options.pop("policy", None) or feedback(TASK), CLIMB, **options)


@eqx.filter_jit
def exact_eig(policy):
    def one(key):
        run = simulate(TASK, policy, key=key)
        return TASK.information_gain(run.ys, run.xis)

    return jax.vmap(one)(jr.split(jr.key(11), 2000)).mean()


@pytest.mark.slow
def test_climbing_raises_the_exact_eig_to_near_its_optimum():
    # From 0.71 nats to 1.23, where 1.28 is the optimum. With the reward's sign turned it is 0.05.
    before = exact_eig(feedback(TASK))
    seen = []
    policy, state = climb(iterations=100, on_step=seen.append)
    assert before < 0.8 * TASK.optimal_eig()
    assert exact_eig(policy) > 0.93 * TASK.optimal_eig()
    assert [info.step for info in seen] == list(range(1, 101))
    assert int(state.step) == 100
    assert set(seen[-1].terms) == {"loss", "gain", "moved"}
    exact = bill(TASK, CLIMB, 100)
    assert exact.lower < realised_nle(state) < exact.upper


def test_log_policy_is_the_density_of_the_designs():
    @jax.jit
    def both(policy, key):
        run = simulate(TASK, policy, key=key)
        before = jnp.concatenate([jnp.zeros((1, 1)), run.ys[:-1]])
        return log_policy(policy, run.ys, run.xis), jax.vmap(policy.log_prob)(run.xis, before).sum()

    assert np.allclose(*both(feedback(TASK), jr.key(0)), rtol=1e-5)


@pytest.mark.slow
def test_a_resumed_run_is_the_uninterrupted_one_bit_for_bit():
    whole = climb()[1]
    half = climb(on_step=lambda info: Stop if info.step == 2 else None)[1]
    assert int(half.step) == 2
    template = start_iosmc(TASK, feedback(TASK), ADAM)
    saved = decode_leaves(encode_leaves(half), template, where="memory")
    resumed = climb(state=saved)[1]
    assert equal(whole, resumed)
    assert not equal(whole, climb(key=jr.key(9))[1])


def test_it_stops_before_an_iteration_that_could_overdraw():
    spent = []
    climb(on_step=lambda info: spent.append(realised_nle(info.state)))
    worst = worst_iteration(TASK, CLIMB)
    assert all(b - a <= worst for a, b in itertools.pairwise(spent))
    _, exact = climb(budget=spent[1] + worst)
    assert int(exact.step) == 3
    _, short = climb(budget=spent[1] + worst - 1)
    assert int(short.step) == 2
    assert realised_nle(short) == spent[1]
    least = worst_start(TASK, CLIMB) + worst
    assert int(climb(iterations=1, budget=least)[1].step) == 1
    with pytest.raises(BudgetExceededError, match=f"{least:,}"):
        climb(budget=least - 1)


# With this range of designs the same program makes useless experiments and overwhelming ones.
WIDE = LinearMarkov(horizon=2, bound=1e6)
FEW = IOSMCSettings(trajectories=5, particles=16, kernels=2, outer_threshold=2.0)


@pytest.mark.parametrize(("threshold", "bound"), [(0.0, "lower"), (2.0, "upper")])
def test_the_count_is_exact_where_moves_are_certain(threshold, bound):
    settings = dataclasses.replace(FEW, inner_threshold=threshold)
    still = optax.sgd(0.0)
    _, state = train_iosmc(
        WIDE, feedback(WIDE, 0.0, 0.0, 1e-6), settings, iterations=3, optimiser=still, key=jr.key(0)
    )
    assert realised_nle(state) == getattr(bill(WIDE, settings, 3), bound)
    assert (
        worst_start(WIDE, settings) + 3 * worst_iteration(WIDE, settings)
        == bill(WIDE, settings, 3).upper
    )


def test_the_count_passes_two_to_the_31():
    state = start_iosmc(TASK, feedback(TASK), ADAM)
    for count in (1, 2**30, 53_427_776_000):
        words = jnp.asarray(divmod(count, 2**30), jnp.int32)
        assert realised_nle(eqx.tree_at(lambda s: s.optimiser.spent, state, words)) == count


# --- what goes wrong ----------------------------------------------------------------------------


def test_weights_that_are_not_finite_raise_at_the_last_good_state():
    _, good = climb(iterations=2)
    ill = eqx.tree_at(lambda s: s.params.offset, good, jnp.asarray([jnp.nan]))
    with pytest.raises(
        DegenerateParticlesError,
        match=r"iteration 3, got parameter particles without.*step 1.*Fix:",
    ) as found:
        climb(state=ill)
    state = found.value.state
    assert int(state.step) == 2
    # All of it, count included: a checkpoint of a step follows from the run.
    assert equal(jax.tree.map(np.nan_to_num, state), jax.tree.map(np.nan_to_num, ill))
    assert (
        bill(TASK, CLIMB, 2).lower - bill(TASK, CLIMB, 1).lower
        <= found.value.nle
        <= worst_iteration(TASK, CLIMB)
    )


def test_particles_at_one_point_raise():
    with pytest.raises(
        DegenerateParticlesError,
        match="before its first iteration, got parameter particles that are all at one",
    ):
        train_iosmc(WIDE, feedback(WIDE, 3.0), FEW, iterations=1, key=jr.key(0))


def test_losses_that_are_not_finite_are_skipped_and_then_raise():
    # A policy without any spread has no density, but its experiments are sound.
    policy = eqx.tree_at(lambda p: p.log_std, feedback(TASK), jnp.asarray([-200.0]))
    seen = []
    with pytest.raises(NonFiniteError, match="step 5") as found:
        climb(policy=policy, iterations=9, on_step=seen.append)
    state = found.value.state
    assert [int(info.state.skipped) for info in seen] == [1, 2, 3, 4]
    assert (int(state.step), int(state.skipped)) == (5, 0)
    assert equal(state.params, eqx.filter(policy, eqx.is_inexact_array))
    assert realised_nle(state) > realised_nle(seen[-1].state)


class Stateful(History):
    """A task with a state of its own."""

    horizon: int = 2
    prior: Prior = standard_normal((Quantity("a"),))
    designs: Space = Real((Quantity("b"),))
    outcomes: tuple[Quantity, ...] = (Quantity("c"),)
    additive_noise: bool = True

    def initial(self, theta):
        return theta

    def outcome(self, theta, state, xi, noise):
        raise NotImplementedError

    log_prob = advance = outcome


def test_what_it_cannot_do_is_refused():
    with pytest.raises(InvalidValueError, match="Markov transitions"):
        require_data_states(Stateful(), "IO-SMC²", fix="use another method.")
    with pytest.raises(InvalidValueError, match="density of its designs"):
        train_iosmc(TASK, make_policy("static", TASK, key=jr.key(0)), CLIMB, key=jr.key(0))
    for wrong in (
        {"trajectories": 1},
        {"particles": 1},
        {"moves": -1},
        {"kernels": 0},
        {"tempering": math.nan},
    ):
        with pytest.raises(InvalidValueError, match="the settings of IO-SMC²"):
            IOSMCSettings(**wrong)


def test_paper_settings_cost_what_the_paper_says():
    table = {
        "pendulum": (1.0, 0.2, 1e-3),
        "cart-pole": (0.25, 0.1, 5e-4),
        "double-link": (0.25, 0.1, 5e-4),
    }
    for name, expected in table.items():
        task = make_task(name)
        preset = preset_values("paper", name, task, method="iosmc")
        method = read_method("iosmc", preset)
        settings, rate = method.particle_settings(), method.policy_training.learning_rate
        assert (settings.tempering, settings.penalty, rate) == expected
        assert worst_start(task, settings) + 25 * worst_iteration(task, settings) == 53_427_776_000
        assert bill(task, settings, 25).lower == 1_336_294_400
