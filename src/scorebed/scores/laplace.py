"""A score without a network: the model's conditional scores, averaged over the posterior around its
modes.

    s(y, ξ) = Σ_p w_p ∇_{y,ξ} log p(y | ξ, f(z_p)),
    w_p ∝ N(z_p; 0, I) p(y | ξ, f(z_p)) / q(z_p),   Σ_p w_p = 1

The points z_p lie around the J modes z_j that Levenberg–Marquardt finds for this very history
(`inference/modes.py`): z_j + L_j⁻ᵀ a along fixed sign patterns a, with L_j L_jᵀ the curvature
there, and q is the mixture of the N(z_j, (L_j L_jᵀ)⁻¹), in which modes that were found several
times weigh no more than others. Nothing is learned, so nothing is off where a policy goes and a
sampler did not.

It is best on informative experiments, where trained scores are at their worst. It needs Gaussian
outcomes, few parameters and a posterior with few modes, and takes J (2 · iterations + 1 + C) T
likelihood evaluations a call."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from scorebed.errors import require
from scorebed.inference.modes import DAMPING, Data, descend, gaussian_task, point, starts
from scorebed.scores.base import Score, ScoreKind, ScoreValue, require_even, require_sizes
from scorebed.scores.particles import mean_over_points, sign_patterns
from scorebed.scores.standardise import Standardiser
from scorebed.tasks.base import Task
from scorebed.tasks.nuisance import needs_conditional_score
from scorebed.tasks.priors import within_prior


class LaplaceScore(Score):
    """J modes with clouds of C points."""

    task: Task
    particles: int = eqx.field(static=True)
    cloud: int = eqx.field(static=True)
    iterations: int = eqx.field(static=True)

    def __init__(self, task: Task, *, particles: int = 16, cloud: int = 8, iterations: int = 16):
        require(
            particles >= 1 and cloud >= 2 and cloud % 2 == 0 and iterations >= 1,
            "a Laplace score",
            got=f"particles={particles}, cloud={cloud}, iterations={iterations}",
            expected="at least one mode and iteration, and an even cloud",
            fix="leave them out for 16, 8 and 16.",
        )
        self.task = gaussian_task(task, "a Laplace score")
        self.particles, self.cloud, self.iterations = particles, cloud, iterations

    def posterior(
        self, ys: Float[Array, "T dy"], xis: Float[Array, "T dx"]
    ) -> tuple[Float[Array, "points k"], Float[Array, " points"]]:
        """The J·C points, and log N(z_p; 0, I) − log q(z_p) up to a constant."""
        task, k = self.task, self.task.prior.dim
        data = Data(ys, task.states_before(ys), xis, jnp.ones(len(ys), bool))
        first = jnp.asarray(starts(self.particles, k), ys.dtype)
        damping = jnp.full(self.particles, DAMPING, ys.dtype)
        modes, _ = descend(task, first, damping, data, iterations=self.iterations)
        root = jnp.linalg.cholesky(jax.vmap(lambda z: point(task, z, data).curvature)(modes))
        patterns = jnp.asarray(sign_patterns(self.cloud, k), ys.dtype)
        around = jax.vmap(
            lambda r: jax.scipy.linalg.solve_triangular(r.T, patterns.T, lower=False).T
        )(root)
        points = within_prior((modes[:, None] + around).reshape(-1, k))
        away = jnp.einsum("jab,pja->pjb", root, points[:, None] - modes)
        log_det = jnp.log(jnp.diagonal(root, axis1=1, axis2=2)).sum(1)
        log_q = jax.nn.logsumexp(log_det - 0.5 * (away**2).sum(-1), axis=1)
        return points, -0.5 * (points**2).sum(1) - log_q

    def __call__(self, ys: Float[Array, "T dy"], xis: Float[Array, "T dx"]) -> ScoreValue:
        points, log_ratio = self.posterior(ys, xis)
        finite = jnp.isfinite(points).all(1) & jnp.isfinite(log_ratio)
        safe = jnp.where(
            finite[:, None], points, 0
        )  # a mode whose curvature overflows has no cloud
        return mean_over_points(
            self.task, safe, lambda logs: jnp.where(finite, log_ratio + logs, -jnp.inf), ys, xis
        )

    @property
    def nle(self) -> int:
        return laplace_nle(self.task, self.particles, self.cloud, self.iterations)


def laplace_nle(task: Task, particles: int, cloud: int, iterations: int) -> int:
    """NLE of one value."""
    return particles * (2 * iterations + 1 + cloud) * task.horizon


class Laplace(ScoreKind):
    """Posterior modes, which need no training."""

    trained: ClassVar[bool] = False

    particles: int = eqx.field(static=True, default=8)
    """Number of starts from which modes are sought."""
    cloud: int = eqx.field(static=True, default=8)
    """Number of points around each mode, even."""
    iterations: int = eqx.field(static=True, default=16)
    """Iterations towards the modes."""

    def __check_init__(self) -> None:
        require_sizes(self)
        require_even(self.cloud)

    def make(self, task: Task, standardise: Standardiser, *, key: PRNGKeyArray) -> LaplaceScore:
        del standardise, key
        return LaplaceScore(
            task, particles=self.particles, cloud=self.cloud, iterations=self.iterations
        )

    def nle(self, task: Task) -> int:
        return laplace_nle(task, self.particles, self.cloud, self.iterations)

    def supports(self, task: Task) -> None:
        gaussian_task(task, "a Laplace score")
        require(
            needs_conditional_score(task) is None,
            f"the scores of {type(task).__name__}",
            got="scores from posterior modes",
            expected="networks that can take ψ as an input",
            fix="use score.kind=particles.",
        )
