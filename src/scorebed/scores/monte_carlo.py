"""Scores by Monte Carlo, with nothing learned: the ground truth where no closed form is known.

    ∇ log p(y | ξ) = E_{p(θ | y, ξ)}[∇ log p(y | ξ, θ)],   ∇ with respect to (y_{1:T}, ξ_{1:T})

`ImportanceScore` takes the posterior mean with self-normalised weights of prior draws, which is the
gradient of the log of the contrastive mean; `SMCScore` takes it over tempered particles, for
histories that leave too few effective draws of the prior.

Both are functions of their key. One key means one set of prior draws for every history, so the
errors of different histories are dependent; give each history another key where they are averaged.
Two keys make two independent estimates s¹, s² of one score, and for any approximation ŝ
that used neither, ⟨s¹ − ŝ, s² − ŝ⟩ estimates ‖s − ŝ‖² without the variance of the ground truth in
it (of which ‖s¹ − ŝ‖² is full), up to the bias of s¹ and s² themselves, O(1/ESS) and O(1/N)."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, Scalar

from scorebed.errors import require
from scorebed.inference.importance import CHUNK, prior_draws, shifted_weights, stream
from scorebed.inference.smc import (
    LEVELS,
    MOVES,
    PARTICLES,
    TARGET,
    SMCPosterior,
    require_settings,
    tempered_smc,
)
from scorebed.rollout import log_likelihoods
from scorebed.scores.base import Evaluated, Score, ScoreValue
from scorebed.tasks.base import Task


class ImportanceScore(Score):
    """∇ log(1/M Σ_m p(y | ξ, θ_m)) with M = `inner` draws of the prior, streamed: memory is one
    chunk. M·T NLE.

    Needs M well above e^{information gain}; below, it is the conditional score of the one draw that
    fits best."""

    task: Task
    key: PRNGKeyArray
    inner: int = eqx.field(static=True)
    chunk: int = eqx.field(static=True)

    def __init__(self, task: Task, inner: int, *, chunk: int = CHUNK, key: PRNGKeyArray):
        require(
            inner >= 1 and chunk >= 1,
            "the size of an importance score",
            got=f"inner={inner}, chunk={chunk}",
            expected="at least one draw and chunks of at least one",
            fix="100000 and 4096 are usual.",
        )
        self.task, self.inner, self.chunk, self.key = task, inner, chunk, key

    def __call__(self, ys: Float[Array, "T dy"], xis: Float[Array, "T dx"]) -> ScoreValue:
        def add(carry: tuple[Array, ...], indices: Array, valid: Array) -> tuple[Array, ...]:
            top, total, s_y, s_xi = carry
            theta = prior_draws(self.task.prior, indices, key=self.key)
            log_lik, pull_back = jax.vjp(
                lambda y, xi: log_likelihoods(self.task, theta, y, xi), ys, xis
            )
            weights, top, shrink = shifted_weights(log_lik + valid.astype(ys.dtype), top)
            grad_y, grad_xi = pull_back(weights)
            return (
                top,
                total * shrink + weights.sum(),
                s_y * shrink + grad_y,
                s_xi * shrink + grad_xi,
            )

        zero = jnp.zeros((), ys.dtype)
        start: tuple[Array, ...] = (zero - jnp.inf, zero, jnp.zeros_like(ys), jnp.zeros_like(xis))
        _, total, s_y, s_xi = stream(add, start, self.inner, self.chunk)
        return ScoreValue(s_y / total, s_xi / total)

    @property
    def nle(self) -> int:
        return self.inner * self.task.horizon


class SMCScore(Score):
    """The mean conditional score of N = `particles` tempered particles. Between (2 + moves) N T NLE
    and `nle` a call.

    The ladder adapts to the history, so `nle` is the most that a call may cost; `posterior` gives
    the exact count of one history, to which the mean itself adds N T."""

    task: Task
    key: PRNGKeyArray
    particles: int = eqx.field(static=True)
    moves: int = eqx.field(static=True)
    target: float = eqx.field(static=True)
    levels: int = eqx.field(static=True)

    def __init__(
        self,
        task: Task,
        particles: int = PARTICLES,
        *,
        moves: int = MOVES,
        target: float = TARGET,
        levels: int = LEVELS,
        key: PRNGKeyArray,
    ):
        require_settings(particles, moves, target, levels)
        self.task, self.particles, self.moves, self.target, self.levels = (
            task,
            particles,
            moves,
            target,
            levels,
        )
        self.key = key

    def posterior(self, ys: Float[Array, "T dy"], xis: Float[Array, "T dx"]) -> SMCPosterior:
        """The particles over which the score is averaged."""
        return tempered_smc(
            self.task,
            ys,
            xis,
            particles=self.particles,
            moves=self.moves,
            target=self.target,
            levels=self.levels,
            key=self.key,
        )

    def __call__(self, ys: Float[Array, "T dy"], xis: Float[Array, "T dx"]) -> ScoreValue:
        return self.average(self.posterior(ys, xis), ys, xis)

    def evaluate(self, ys: Float[Array, "N T dy"], xis: Float[Array, "N T dx"]) -> Evaluated:
        """The passes are known only afterwards: one for each level's moves, and one for the
        mean.
        """
        posteriors = jax.vmap(self.posterior)(ys, xis)
        means = jax.vmap(self.average)(posteriors, ys, xis)
        return Evaluated(means, (posteriors.passes + 1).sum())

    @property
    def pass_nle(self) -> int:
        """All particles over one history."""
        return self.particles * self.task.horizon

    def average(
        self, posterior: SMCPosterior, ys: Float[Array, "T dy"], xis: Float[Array, "T dx"]
    ) -> ScoreValue:
        """Mean conditional score of given particles. N T NLE."""

        def potential(ys: Float[Array, "T dy"], xis: Float[Array, "T dx"]) -> Scalar:
            return log_likelihoods(self.task, posterior.theta, ys, xis).mean()

        return ScoreValue(*jax.grad(potential, argnums=(0, 1))(ys, xis))

    @property
    def nle(self) -> int:
        return self.particles * self.task.horizon * (2 + self.levels * self.moves)
