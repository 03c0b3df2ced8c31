"""The predictive distribution of the next outcome, for outcomes that are finitely many.

    q(y_t | ξ_t, h_{t−1}) ≈ p(y_t | ξ_t, h_{t−1}) = E[p(y_t | ξ_t, θ, h_{t−1}) | h_{t−1}]

It does not depend on the policy that chose the designs, as the marginal score does not: it is
learned once, by cross-entropy, and serves every policy.

**Particles**, where states follow from the data. The predictive is a posterior mean of likelihoods,
so a few weighted parameters that follow from the history are all that has to be learned:

    q(y | ξ_t, h_{t−1}) = Σ_j w_j(h_{t−1}) p(y | ξ_t, θ_j(h_{t−1}), state)

It is normalised, has the shape of the model over many counts, and says something sensible at
designs that were never seen. The history enters by a sum over its steps of an encoding of each, and
by the posterior on a few fixed points of the prior, whose mean and spread the particles start from.

**Logits**, for any other task: a recurrent network of the history, and an MLP of its state and the
next design.
"""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from scorebed.errors import require
from scorebed.inference.modes import starts
from scorebed.nets.gru import GRU
from scorebed.nets.mlp import MLP
from scorebed.rollout import step_log_likelihoods, step_log_probs
from scorebed.scores.standardise import Standardiser
from scorebed.tasks.base import Task, frozen

POINTS = 64  # of the prior, at which the posterior is looked at
FEW_VALUES = 16  # outcomes so few are told apart one by one, not by their size
LARGEST = 4096  # outcomes of a step


class Predictive(eqx.Module):
    """q(y_t | ξ_t, h_{t−1}) of every outcome of every step of an experiment."""

    def __call__(self, ys: Float[Array, "T dy"], xis: Float[Array, "T dx"]) -> Float[Array, "T Y"]:
        """log q(y | ξ_t, h_{t−1}), in the order of `Task.all_outcomes`; row t sees the outcomes
        before step t and the designs up to it.
        """
        return self.given(ys, xis, xis)

    @abc.abstractmethod
    def given(
        self, ys: Float[Array, "T dy"], xis: Float[Array, "T dx"], at: Float[Array, "T dx"]
    ) -> Float[Array, "T Y"]:
        """The same for other designs `at` of each step after the same history."""

    @property
    @abc.abstractmethod
    def nle(self) -> int:
        """Likelihood evaluations of one call."""


class StepCode(eqx.Module):
    """The inputs of a network for one step: the outcome, one-hot if it has few values, and the
    standardised design; for transitions also the outcome before.
    """

    standardise: Standardiser
    task: Task
    one_hot: bool = eqx.field(static=True)

    def __init__(self, task: Task, standardise: Standardiser):
        self.task, self.standardise = task, standardise
        self.one_hot = task.outcome_count <= FEW_VALUES

    @property
    def size(self) -> int:
        """Number of inputs."""
        of_y = self.task.outcome_count if self.one_hot else self.task.outcome_dim
        return of_y * (1 + self.task.exchangeable_transitions) + self.task.designs.dim

    def __call__(self, ys: Float[Array, "T dy"], xis: Float[Array, "T dx"]) -> Float[Array, "T n"]:
        parts = [self._outcome(ys), self.standardise.xi(xis)]
        if self.task.exchangeable_transitions:
            parts.append(self._outcome(self.task.states_before(ys)))
        return jnp.concatenate(parts, axis=-1)

    def _outcome(self, ys: Float[Array, "T dy"]) -> Float[Array, "T n"]:
        if not self.one_hot:
            return self.standardise.y(ys)
        index = jax.vmap(self.task.outcome_index)(ys)
        return jax.nn.one_hot(index, self.task.outcome_count, dtype=ys.dtype)


class ParticlePredictive(Predictive):
    """Likelihoods of J particles that follow from the history. T·(J·|Y| + `POINTS`) NLE."""

    task: Task
    code: StepCode
    encoder: MLP
    head: MLP
    pull: Float[Array, " k"]
    spread: Float[Array, " k"]
    points: Float[Array, "M k"]
    particles: int = eqx.field(static=True)

    def __init__(
        self,
        task: Task,
        standardise: Standardiser,
        *,
        particles: int = 32,
        width: int = 128,
        key: PRNGKeyArray,
    ):
        key_encoder, key_head = jr.split(key)
        k = task.prior.dim
        self.task, self.particles = task, particles
        self.code = StepCode(task, standardise)
        self.encoder = MLP((self.code.size, width, width), jax.nn.silu, key=key_encoder)
        self.head = MLP(
            (width + 2 * k + 1, width, width, particles * (k + 1)), jax.nn.silu, key=key_head
        )
        self.pull, self.spread = jnp.ones(k), jnp.zeros(k)
        self.points = jnp.asarray(starts(POINTS, k))

    def posterior(
        self, ys: Float[Array, "T dy"], xis: Float[Array, "T dx"]
    ) -> tuple[Float[Array, "T J k"], Float[Array, "T J"]]:
        """The latent particles before every step, and their log-weights."""
        task, T = frozen(self.task), len(ys)
        points = jax.lax.stop_gradient(self.points)
        thetas = jax.vmap(task.prior.from_latent)(points)
        seen = before(step_log_likelihoods(task, thetas, ys, xis))
        weights = jax.nn.softmax(seen)
        mean = weights @ points
        spread = jnp.sqrt(jnp.maximum(weights @ points**2 - mean**2, 1e-6))
        codes = before(self.encoder(self.code(ys, xis))) / T**0.5
        done = jnp.arange(T, dtype=ys.dtype)[:, None] / T
        out = self.head(jnp.concatenate([codes, mean, spread, done], axis=-1))
        k = task.prior.dim
        away = out[:, : -self.particles].reshape(T, self.particles, k)
        wide = (jax.nn.softplus(self.spread - 1) + spread)[:, None]
        # The offsets of a fresh network are small: it starts from points of the prior itself.
        first = jnp.asarray(starts(self.particles, k)) if self.particles > 1 else 0.0
        return self.pull * mean[:, None] + wide * (first + away), jax.nn.log_softmax(
            out[:, -self.particles :]
        )

    def given(
        self, ys: Float[Array, "T dy"], xis: Float[Array, "T dx"], at: Float[Array, "T dx"]
    ) -> Float[Array, "T Y"]:
        task = frozen(self.task)
        z, log_weights = self.posterior(ys, xis)
        thetas = jax.vmap(jax.vmap(task.prior.from_latent))(z)
        of_particles = jax.vmap(task.log_probs, in_axes=(0, None, None))
        each = jax.vmap(of_particles)(thetas, task.states_before(ys), at)
        return jax.nn.logsumexp(log_weights[..., None] + each, axis=1)

    @property
    def nle(self) -> int:
        return self.task.horizon * (self.particles * self.task.outcome_count + len(self.points))


class LogitPredictive(Predictive):
    """A recurrent network. No likelihood is evaluated."""

    code: StepCode
    encoder: MLP
    cells: GRU
    head: MLP

    def __init__(
        self, task: Task, standardise: Standardiser, *, width: int = 128, key: PRNGKeyArray
    ):
        key_encoder, key_cells, key_head = jr.split(key, 3)
        self.code = StepCode(task, standardise)
        self.encoder = MLP((self.code.size, width, width), jax.nn.silu, key=key_encoder)
        self.cells = GRU(width, width, 1, key=key_cells)
        self.head = MLP(
            (width + task.designs.dim, width, width, task.outcome_count), jax.nn.silu, key=key_head
        )

    def given(
        self, ys: Float[Array, "T dy"], xis: Float[Array, "T dx"], at: Float[Array, "T dx"]
    ) -> Float[Array, "T Y"]:
        codes = self.encoder(self.code(ys, xis))

        def step(memory: Array, code: Array) -> tuple[Array, Array]:
            return self.cells(memory, code), memory[-1]

        _, memories = jax.lax.scan(step, self.cells.init(), codes)
        designs = self.code.standardise.xi(at)
        return jax.nn.log_softmax(self.head(jnp.concatenate([memories, designs], axis=-1)))

    @property
    def nle(self) -> int:
        return 0


class WeighedPredictive(Predictive):
    """The predictive of a prior on finitely many θ, exactly: an oracle on a grid, a Monte Carlo
    estimate on draws. For states that follow from the data. 2·T·|Y| NLE for each θ.
    """

    task: Task
    thetas: Float[Array, "M k"]
    log_weights: Float[Array, " M"]

    def given(
        self, ys: Float[Array, "T dy"], xis: Float[Array, "T dx"], at: Float[Array, "T dx"]
    ) -> Float[Array, "T Y"]:
        each = jax.vmap(lambda theta: step_log_probs(self.task, theta, ys, xis))(self.thetas)
        rows = jax.vmap(self.task.outcome_index)(ys)
        taken = jnp.take_along_axis(each, rows[None, :, None], axis=-1)[..., 0]
        weights = jax.nn.log_softmax(self.log_weights[:, None] + before(taken, axis=1), axis=0)
        there = jax.vmap(
            lambda theta: jax.vmap(self.task.log_probs, in_axes=(None, 0, 0))(
                theta, self.task.states_before(ys), at
            )
        )(self.thetas)
        return jax.nn.logsumexp(weights[..., None] + there, axis=0)

    @property
    def nle(self) -> int:
        return 2 * len(self.thetas) * self.task.horizon * self.task.outcome_count


def make_predictive(
    task: Task, standardise: Standardiser, *, particles: int, width: int, key: PRNGKeyArray
) -> Predictive:
    """An untrained predictive: particles where states follow from the data, else logits."""
    require_discrete(task, "a predictive distribution")
    if task.states_follow_data:
        return ParticlePredictive(task, standardise, particles=particles, width=width, key=key)
    return LogitPredictive(task, standardise, width=width, key=key)


def require_discrete(task: Task, purpose: str) -> None:
    """Refuse outcomes that are not finitely many, or too many to go through."""
    require(
        task.discrete_outcomes and task.has_density,
        f"the outcomes of {type(task).__name__} for {purpose}",
        got=", ".join(str(q) for q in task.outcomes if not q.values) or "a model without a density",
        expected="finitely many, with probabilities",
        fix="declare them by categories(…) or counts(…), or use --method score.",
    )
    require(
        task.outcome_count <= LARGEST,
        f"the outcomes of {type(task).__name__}",
        got=f"{task.outcome_count:,} different ones in a step",
        expected=f"at most {LARGEST:,}",
        fix="count in larger units, or lower at_most.",
    )


def before(each: Float[Array, "*n"], *, axis: int = 0) -> Float[Array, "*n"]:
    """Sums over the steps before each."""
    return jnp.cumsum(each, axis) - each


def all_histories(task: Task) -> Float[np.ndarray, "H T dy"]:
    """Every history of outcomes, |Y|^T of them."""
    values, T = task.all_outcomes(), task.horizon
    index = np.indices((len(values),) * T).reshape(T, -1).T
    return values[index]
