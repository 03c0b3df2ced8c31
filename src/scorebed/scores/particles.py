"""Likelihood particles: a score made of the model's conditional scores.

    s(y, ξ) = Σ_j w_j(y, ξ) ∇_{y,ξ} log p(y | ξ, θ_j(y, ξ))

The marginal score is the posterior mean of the conditional one (the identity behind marginal score
matching), so a few parameter particles and their weights are all that has to be learned. An encoder
pools the steps (the transitions of Markov tasks) and emits J centres and scales in the latent
coordinates z of the prior, θ = f(z), J log-weights and one temperature β in (0, 1). Each centre
carries a cloud of C points, centre ± scale along fixed sign patterns, which softens the likelihood
over the posterior's width without any change to the model; and each point's weight is its centre's
times the point's likelihood to the power β, so that a point that falls where the data forbid it
drops out. Points keep to where the prior has its draws (`within_prior`).

Needs a prior with a latent map and a task with exchangeable steps or transitions. A call costs
J·C·T likelihood evaluations."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, Scalar

from scorebed.errors import require
from scorebed.nets.finite import finite_cotangent
from scorebed.nets.fourier import CYCLE, FourierFeatures
from scorebed.nets.mlp import MLP
from scorebed.scores.base import Score, ScoreKind, ScoreValue, require_even, require_sizes
from scorebed.scores.standardise import Standardiser
from scorebed.tasks.base import Task, frozen, require_data_states
from scorebed.tasks.nuisance import needs_conditional_score
from scorebed.tasks.priors import within_prior

# β starts at sigmoid(−COLD): with β near one at the start a single point would take all the weight,
# and nothing would be learned.
COLD = 4.0
SMALLEST_CLOUD = 2
USE_TRANSFORMER = "use the transformer score, with fixed weights."


def sign_patterns(count: int, dim: int) -> np.ndarray:
    """`count` (even) vectors of ±1 in `dim` dimensions in opposite pairs, orthogonal as far as they
    can be.

    In few dimensions there are fewer such vectors than that: the same ones then stand at several
    distances, of mean square one."""
    order = 1 << (max(dim, count // 2) - 1).bit_length()
    rows = np.ones((1, 1))
    while len(rows) < order:
        rows = np.block([[rows, rows], [rows, -rows]])
    half = rows[: count // 2, :dim]
    rank = np.asarray([1.0 + (half[:i] == row).all(1).sum() for i, row in enumerate(half)])
    half = half * (rank / np.sqrt((rank**2).mean()))[:, None]
    return np.concatenate([half, -half])


class StepEncoder(eqx.Module):
    """One vector per step or transition, from standardised inputs and their Fourier features, of
    `sigma` cycles per unit.
    """

    standardise: Standardiser
    features: FourierFeatures
    mlp: MLP
    transitions: bool = eqx.field(static=True)

    def __init__(
        self,
        task: Task,
        standardise: Standardiser,
        width: int,
        *,
        features: int,
        sigma: float,
        key: PRNGKeyArray,
    ):
        key_features, key_mlp = jr.split(key)
        self.standardise, self.transitions = standardise, task.exchangeable_transitions
        inputs = task.outcome_dim * (1 + self.transitions) + task.designs.dim
        self.features = FourierFeatures(inputs, features, sigma=sigma, unit=CYCLE, key=key_features)
        self.mlp = MLP((features + inputs, width, width), jax.nn.silu, key=key_mlp)

    def __call__(
        self, task: Task, ys: Float[Array, "T dy"], xis: Float[Array, "T dx"]
    ) -> Float[Array, "T width"]:
        parts = [self.standardise.xi(xis)]
        if self.transitions:
            before = task.states_before(ys)
            parts += [self.standardise.y(before), self.standardise.step(ys - before)]
        else:
            parts += [self.standardise.y(ys)]
        x = jnp.concatenate(parts, axis=-1)
        return self.mlp(jnp.concatenate([self.features(x), x], axis=-1))


def mean_over_points(
    task: Task,
    points: Float[Array, "P k"],
    log_weights: Callable[[Float[Array, " P"]], Float[Array, " P"]],
    ys: Float[Array, "T dy"],
    xis: Float[Array, "T dx"],
) -> ScoreValue:
    """Σ_p w_p ∇_{y,ξ} log p(y | ξ, f(z_p)), with the weights that `log_weights` gives for the
    points' log-likelihoods, normalised. P·T NLE.

    A point at which the model is not finite, or its gradient is not, has no weight: neither the
    value nor its derivatives see it. If that is every point, the value is NaN.
    """
    # Every point has its own copy of the data, so that its gradient is its own; the points are the
    # last axis, along which a scalar of the model is a contiguous vector.
    thetas = jax.vmap(task.prior.from_latent)(finite_cotangent(points))
    copies = [jnp.broadcast_to(x[..., None], (*x.shape, len(points))) for x in (ys, xis)]

    def step_log_likelihoods(ys: Array, xis: Array) -> Float[Array, "T P"]:
        states = jax.vmap(task.states_before, in_axes=-1, out_axes=-1)(ys)
        of_step = jax.vmap(task.log_prob, in_axes=(-1, 1, -1, -1))
        return jax.vmap(of_step, in_axes=(0, None, 0, 0))(ys, thetas.T, states, xis)

    steps, pull_back = jax.vjp(step_log_likelihoods, *copies)
    total = steps.sum(0)
    finite = jnp.isfinite(total)
    log_weight = log_weights(jnp.where(finite, total, 0))
    weight = jax.nn.softmax(jnp.where(finite, log_weight, -jnp.inf))
    # Derivatives in the weight of a point that overflows are NaN, and softmax would share them out.
    weight = finite_cotangent(jnp.where(finite, weight, 0)[:, None])[:, 0]
    each = pull_back(jnp.broadcast_to(weight, steps.shape))
    smooth = finite & jnp.isfinite(each[0]).all((0, 1)) & jnp.isfinite(each[1]).all((0, 1))
    kept = jnp.where(smooth, weight, 0).sum()
    return ScoreValue(*(jnp.where(smooth, part, 0).sum(-1) / kept for part in each))


class LikelihoodParticles(Score):
    """J amortised particles with clouds of C points."""

    task: Task
    encoder: StepEncoder
    head: MLP
    patterns: Float[Array, "C k"]
    particles: int = eqx.field(static=True)

    def __init__(
        self,
        task: Task,
        standardise: Standardiser,
        *,
        particles: int = 8,
        cloud: int = 8,
        width: int = 128,
        features: int = 64,
        sigma: float = 0.3,
        key: PRNGKeyArray,
    ):
        require(
            particles >= 1 and cloud >= 2 and cloud % 2 == 0,
            "likelihood particles",
            got=f"particles={particles}, cloud={cloud}",
            expected="at least one particle and an even cloud",
            fix="leave them out for 8 and 8.",
        )
        key_encoder, key_head = jr.split(key)
        k = task.prior.dim
        self.task = require_data_states(task, "likelihood particles", fix=USE_TRANSFORMER)
        self.particles = particles
        self.encoder = StepEncoder(
            task, standardise, width, features=features, sigma=sigma, key=key_encoder
        )
        self.head = MLP(
            (2 * width, 2 * width, particles * (2 * k + 1) + 1), jax.nn.silu, key=key_head
        )
        self.patterns = jnp.asarray(sign_patterns(cloud, k), jnp.float32)

    def posterior(
        self, ys: Float[Array, "T dy"], xis: Float[Array, "T dx"]
    ) -> tuple[Float[Array, "points k"], Float[Array, " points"], Scalar]:
        """The J·C latent points, their log-weights and the temperature β."""
        h = self.encoder(self.task, ys, xis)
        out = self.head(jnp.concatenate([h.mean(0), jax.nn.logsumexp(h, axis=0)]))
        j, k = self.particles, self.task.prior.dim
        centre, raw_scale = out[: j * k].reshape(j, 1, k), out[j * k : 2 * j * k].reshape(j, 1, k)
        points = centre + jax.nn.softplus(raw_scale - 1) * jax.lax.stop_gradient(self.patterns)
        log_weight = jnp.repeat(jax.nn.log_softmax(out[2 * j * k : -1]), len(self.patterns))
        return within_prior(points).reshape(-1, k), log_weight, jax.nn.sigmoid(out[-1] - COLD)

    def __call__(self, ys: Float[Array, "T dy"], xis: Float[Array, "T dx"]) -> ScoreValue:
        points, log_weight, beta = self.posterior(ys, xis)
        task = frozen(self.task)

        def log_weights(log_likelihoods: Float[Array, " points"]) -> Float[Array, " points"]:
            return log_weight + beta * log_likelihoods

        return mean_over_points(task, points, log_weights, ys, xis)

    @property
    def nle(self) -> int:
        return self.particles * len(self.patterns) * self.task.horizon


class Particles(ScoreKind):
    """Likelihood particles: the model's conditional scores at a few learned parameters."""

    particles: int = eqx.field(static=True, default=8)
    """Number of amortised particles."""
    cloud: int = eqx.field(static=True, default=8)
    """Number of points around each particle, even."""
    width: int = eqx.field(static=True, default=128)
    """Width of the network's hidden layers."""

    def __check_init__(self) -> None:
        require_sizes(self)
        require_even(self.cloud)

    def make(
        self, task: Task, standardise: Standardiser, *, key: PRNGKeyArray
    ) -> LikelihoodParticles:
        return LikelihoodParticles(
            task,
            standardise,
            particles=self.particles,
            cloud=self.cloud,
            width=self.width,
            key=key,
        )

    def nle(self, task: Task) -> int:
        scores = 1 if needs_conditional_score(task) is None else 2
        return scores * self.particles * self.cloud * task.horizon

    def supports(self, task: Task) -> None:
        require(
            task.has_density,
            "likelihood particles",
            got=f"{type(task).__name__}, a model without a density",
            expected="one with `log_prob`",
            fix="use score.kind=transformer-direct.",
        )
        require_data_states(task, "likelihood particles", fix=USE_TRANSFORMER)

    def smaller(self) -> "Particles | None":
        """Half the cloud, at least two points."""
        if self.cloud < 2 * SMALLEST_CLOUD:
            return None
        return Particles(self.particles, self.cloud // 4 * 2, self.width)
