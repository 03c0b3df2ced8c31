"""The only loops over experiment steps: a policy acting on a task, and the likelihood of a history.

Everything is for one experiment; `vmap` over parameters, noise or trajectories outside. Where the
states follow from the data alone (`Task.states_follow_data`), likelihoods need no loop at all."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray, Scalar

from scorebed.keys import named
from scorebed.policies.base import Memory, Policy
from scorebed.policies.random import RandomDesigns, Replay
from scorebed.samplers.base import DesignSampler
from scorebed.tasks.base import State, Task

PILOT = 1024
TILE = 8192  # numbers: 32 kB
FEW = 8  # coordinates of a parameter that need no tiles


class Noise(eqx.Module):
    """ε: everything random about one experiment besides θ. Drawn by `draw_noise`.

    Attributes:
        outcome: standard normal numbers of the outcomes, [T, dn].
        policy: the policy's noise, [T, n]; n = 0 if it is deterministic.

    Example:
        >>> task = sb.make_task("linear-gaussian")
        >>> policy = sb.make_policy("static", task, key=jr.key(0))
        >>> noise = sb.draw_noise(task, policy, key=jr.key(1))
        >>> isinstance(noise, sb.Noise), noise.policy.shape
        (True, (3, 0))
    """

    outcome: Float[Array, "T dn"]
    policy: Float[Array, "T n"]


class Trajectory(eqx.Module):
    """One experiment, as `simulate` makes it; under `vmap` a batch, with an axis in front.

    Attributes:
        theta: the parameters that made it, [k].
        ys: the outcomes, [T, dy].
        xis: the designs, [T, dx].

    Example:
        >>> task = sb.make_task("linear-gaussian")
        >>> policy = sb.make_policy("static", task, key=jr.key(0))
        >>> one = sb.simulate(task, policy, key=jr.key(1))
        >>> isinstance(one, sb.Trajectory), one.ys.shape
        (True, (3, 1))
    """

    theta: Float[Array, " k"]
    ys: Float[Array, "T dy"]
    xis: Float[Array, "T dx"]


def draw_noise(task: Task, policy: Policy, *, key: PRNGKeyArray) -> Noise:
    """ε ~ q(ε): the noise of one experiment.

    Arguments:
        task: the experiment.
        policy: the policy, which may have noise too.
        key: the random key.

    Returns:
        The `Noise` of the outcomes and of the policy.

    Example:
        >>> task = sb.make_task("linear-gaussian")
        >>> policy = sb.make_policy("static", task, key=jr.key(0))
        >>> sb.draw_noise(task, policy, key=jr.key(1)).outcome.shape
        (3, 1)
    """
    outcome = jr.normal(named(key, "outcome"), (task.horizon, task.noise_dim))
    return Noise(outcome, policy.sample_noise(task.horizon, key=named(key, "policy")))


def rollout(task: Task, policy: Policy, theta: Float[Array, " k"], noise: Noise) -> Trajectory:
    """(y, ξ)_{1:T} = g(ε, θ, φ), differentiable in all three."""

    def step(
        carry: tuple[State, Memory], eps: Noise
    ) -> tuple[tuple[State, Memory], tuple[Array, Array]]:
        state, memory = carry
        xi = policy.design(memory, eps.policy)
        y = task.outcome(theta, state, xi, eps.outcome)
        return (task.advance(theta, state, xi, y), policy.update(memory, xi, y)), (y, xi)

    _, (ys, xis) = jax.lax.scan(step, (task.initial(theta), policy.init()), noise)
    return Trajectory(theta, ys, xis)


def simulate(task: Task, policy: Policy, *, key: PRNGKeyArray) -> Trajectory:
    """One experiment: θ from the prior, designs of the policy, outcomes of the task. No NLE.

    Arguments:
        task: the experiment.
        policy: the policy.
        key: the random key.

    Returns:
        A `Trajectory`, differentiable in the policy. `vmap` over keys for a batch.

    Example:
        >>> task = sb.make_task("linear-gaussian")
        >>> policy = sb.make_policy("static", task, key=jr.key(0))
        >>> one = sb.simulate(task, policy, key=jr.key(1))
        >>> one.theta.shape, one.ys.shape, one.xis.shape
        ((1,), (3, 1), (3, 1))
    """
    noise = draw_noise(task, policy, key=named(key, "noise"))
    return rollout(task, policy, task.prior.sample(key=named(key, "theta")), noise)


def pilot_runs(
    task: Task, sampler: DesignSampler, *, count: int = PILOT, key: PRNGKeyArray
) -> Trajectory:
    """A batch of `count` experiments with designs of a sampler, from which inputs are standardised
    and residuals weighed. Simulations only: no likelihood is evaluated.
    """
    designs = RandomDesigns(sampler)
    return jax.vmap(lambda k: simulate(task, designs, key=k))(jr.split(key, count))


def simulate_outcomes(
    task: Task, theta: Float[Array, " k"], xis: Float[Array, "T dx"], noise: Float[Array, "T dn"]
) -> Float[Array, "T dy"]:
    """Outcomes of designs that were fixed before the experiment. No NLE.

    Arguments:
        task: the experiment.
        theta: its parameters, [k].
        xis: the designs, [T, dx].
        noise: standard normal numbers, [T, dn] with dn = `task.noise_dim`.

    Returns:
        The outcomes, [T, dy].

    Example:
        >>> task = sb.make_task("linear-gaussian")
        >>> sb.simulate_outcomes(task, jnp.array([2.0]), jnp.ones((3, 1)), jnp.zeros((3, 1)))[:, 0]
        Array([2., 2., 2.], dtype=float32)
    """
    if task.exchangeable_steps:
        return jax.vmap(task.outcome, in_axes=(None, None, 0, 0))(theta, None, xis, noise)
    return rollout(task, Replay(), theta, Noise(noise, xis)).ys


def log_likelihood(
    task: Task, theta: Float[Array, " k"], ys: Float[Array, "T dy"], xis: Float[Array, "T dx"]
) -> Scalar:
    """log p(y_{1:T} | ξ_{1:T}, θ) = Σ_t log p(y_t | ξ_t, θ, h_{t−1}). T NLE.

    Arguments:
        task: the experiment.
        theta: its parameters, [k].
        ys: the outcomes, [T, dy].
        xis: the designs, [T, dx].

    Returns:
        The log-likelihood of the whole experiment.

    Raises:
        NoDensityError: if the task has no density.

    Example:
        >>> task = sb.make_task("linear-gaussian")
        >>> value = sb.log_likelihood(task, jnp.zeros(1), jnp.zeros((3, 1)), jnp.ones((3, 1)))
        >>> round(float(value), 3)
        -2.757
    """
    if task.states_follow_data:
        return jax.vmap(task.log_prob, in_axes=(0, None, 0, 0))(
            ys, theta, task.states_before(ys), xis
        ).sum()
    return _scan_history(task, theta[:, None], ys, xis)[0]


def log_likelihoods(
    task: Task, thetas: Float[Array, "M k"], ys: Float[Array, "T dy"], xis: Float[Array, "T dx"]
) -> Float[Array, " M"]:
    """log p(y_{1:T} | ξ_{1:T}, θ_m) = Σ_t log p(y_t | ξ_t, θ_m, h_{t−1}) for many contrastive
    parameters. M·T NLE.

    The hot path of every bound: steps are scanned and the contrastive axis stays innermost, one row
    per parameter coordinate, so that each scalar of the task becomes a contiguous vector. `vmap`
    over trajectories outside. Many coordinates are taken in tiles that fit a core's cache: three
    times as fast with thirty of them.

    Arguments:
        task: the experiment.
        thetas: M parameters, [M, k].
        ys: the outcomes, [T, dy].
        xis: the designs, [T, dx].

    Returns:
        The log-likelihoods, [M]; −∞ where a model overflows to NaN.

    Raises:
        NoDensityError: if the task has no density.

    Example:
        >>> task = sb.make_task("linear-gaussian")
        >>> sb.log_likelihoods(task, jnp.zeros((5, 1)), jnp.zeros((3, 1)), jnp.ones((3, 1))).shape
        (5,)
    """
    M, k = thetas.shape
    tile = 1 << max(TILE // k, 1).bit_length() - 1  # a power of two, as chunks of parameters are
    if k > FEW and tile < M and M % tile == 0:
        tiles = thetas.reshape(-1, tile, k)
        return jax.lax.map(lambda part: log_likelihoods(task, part, ys, xis), tiles).reshape(M)
    columns = thetas.T
    if not task.states_follow_data:
        return _impossible_unless_finite(_scan_history(task, columns, ys, xis))
    log_prob = jax.vmap(task.log_prob, in_axes=(None, 1, None, None))

    def step(total: Array, data: tuple[Array, State, Array]) -> tuple[Array, None]:
        y, state, xi = data
        return total + log_prob(y, columns, state, xi), None

    total = jax.lax.scan(
        step, jnp.zeros(thetas.shape[0], ys.dtype), (ys, task.states_before(ys), xis)
    )[0]
    return _impossible_unless_finite(total)


def _impossible_unless_finite(log_likelihoods: Float[Array, " M"]) -> Float[Array, " M"]:
    """−∞ in place of NaN: parameters at which a model overflows did not make the data."""
    return jnp.where(jnp.isnan(log_likelihoods), -jnp.inf, log_likelihoods)


def step_log_likelihoods(
    task: Task, thetas: Float[Array, "M k"], ys: Float[Array, "T dy"], xis: Float[Array, "T dx"]
) -> Float[Array, "T M"]:
    """log p(y_t | ξ_t, θ_m, state) for a few parameters, all steps at once, of a task whose states
    follow from the data. M·T NLE.
    """
    over_thetas = jax.vmap(task.log_prob, in_axes=(None, 1, None, None))
    return jax.vmap(over_thetas, in_axes=(0, None, 0, 0))(ys, thetas.T, task.states_before(ys), xis)


def step_log_probs(
    task: Task, theta: Float[Array, " k"], ys: Float[Array, "T dy"], xis: Float[Array, "T dx"]
) -> Float[Array, "T Y"]:
    """log p(y | ξ_t, θ, h_{t−1}) of every outcome y that step t could have had after the outcomes
    before it. For finitely many outcomes. T·|Y| NLE.
    """
    if task.states_follow_data:
        return jax.vmap(task.log_probs, in_axes=(None, 0, 0))(theta, task.states_before(ys), xis)

    def step(state: State, data: tuple[Array, Array]) -> tuple[State, Array]:
        y, xi = data
        return task.advance(theta, state, xi, y), task.log_probs(theta, state, xi)

    return jax.lax.scan(step, task.initial(theta), (ys, xis))[1]


def price(task: Task, xis: Float[Array, "T dx"]) -> Scalar:
    """What designs cost in nats, price · Σ_t cost(ξ_t), which every estimator subtracts. Zero where
    they cost nothing.
    """
    return jnp.zeros((), xis.dtype) if task.cost is None else task.cost.price * task.cost.total(xis)


def _scan_history(
    task: Task, columns: Float[Array, "k M"], ys: Float[Array, "T dy"], xis: Float[Array, "T dx"]
) -> Float[Array, " M"]:
    """Likelihoods where each parameter carries its state along."""
    log_prob = jax.vmap(task.log_prob, in_axes=(None, 1, 0, None))
    advance = jax.vmap(task.advance, in_axes=(1, 0, None, None))

    def step(
        carry: tuple[Array, State], data: tuple[Array, Array]
    ) -> tuple[tuple[Array, State], None]:
        total, state = carry
        y, xi = data
        return (total + log_prob(y, columns, state, xi), advance(columns, state, xi, y)), None

    start = (jnp.zeros(columns.shape[1], ys.dtype), jax.vmap(task.initial, in_axes=1)(columns))
    return jax.lax.scan(step, start, (ys, xis))[0][0]
