"""The posterior mean of the conditional scores over draws around the posterior's modes, weighted
exactly.

    s(y, ξ) = Σ_m w_m ∇_{y,ξ} log p(y | ξ, f(z_m)),   z_m ~ q(z | y, ξ),
    w_m ∝ N(z_m; 0, I) p(y | ξ, f(z_m)) / q(z_m | y, ξ),   Σ_m w_m = 1

q is the mixture of Gaussians at the modes that Levenberg–Marquardt finds for this history, with
heavier tails and 5% of the prior (`inference/laplace.py`). Where prior draws would have to be
e^{information gain} in number, some hundred draws of q do. When wrong: a posterior with more modes
than were found, or a curved one; the weights show both, as long as some draw falls there."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, PRNGKeyArray, Scalar

from scorebed.errors import require
from scorebed.inference.gaussian_mixture import Density, standard_normal_log_prob
from scorebed.inference.laplace import laplace_histories, laplace_posterior
from scorebed.inference.modes import gaussian_task
from scorebed.inference.resampling import effective_sample_size
from scorebed.rollout import log_likelihood, log_likelihoods
from scorebed.scores.base import Score, ScoreValue
from scorebed.tasks.base import Task


class ProposalQuality(NamedTuple):
    """How good the draws for one history are: their effective number, and whether the latent that
    made the history, itself a draw of the posterior, has more weight than all of them together.
    """

    ess: Scalar
    missed: Bool[Array, ""]


class ReweightedLaplaceScore(Score):
    """M = `inner` weighted draws. (M + what the modes take) T NLE a call."""

    task: Task
    key: PRNGKeyArray
    inner: int = eqx.field(static=True)

    def __init__(self, task: Task, inner: int, *, key: PRNGKeyArray):
        require(
            inner >= 1,
            "the draws of a reweighted Laplace score",
            got=inner,
            expected="at least one",
            fix="512 is usual.",
        )
        self.task, self.inner, self.key = gaussian_task(task, "a Laplace truth"), inner, key

    def __call__(self, ys: Float[Array, "T dy"], xis: Float[Array, "T dx"]) -> ScoreValue:
        thetas, log_ratios, _ = self._draws(ys, xis)
        log_lik, pull_back = jax.vjp(
            lambda ys, xis: log_likelihoods(self.task, thetas, ys, xis), ys, xis
        )
        return ScoreValue(*pull_back(jax.nn.softmax(log_ratios + log_lik)))

    def quality(
        self, z: Float[Array, " k"], ys: Float[Array, "T dy"], xis: Float[Array, "T dx"]
    ) -> ProposalQuality:
        """Of the draws for a history that the latent z made. One more likelihood than a call."""
        thetas, log_ratios, density = self._draws(ys, xis)
        log_weights = log_ratios + log_likelihoods(self.task, thetas, ys, xis)
        ratio = standard_normal_log_prob(z) - density.log_prob(z)
        own = ratio + log_likelihood(self.task, self.task.prior.from_latent(z), ys, xis)
        return ProposalQuality(
            effective_sample_size(log_weights), own > jax.nn.logsumexp(log_weights)
        )

    def _draws(
        self, ys: Float[Array, "T dy"], xis: Float[Array, "T dx"]
    ) -> tuple[Float[Array, "M k"], Float[Array, " M"], Density]:
        """Parameters, log N(z; 0, I) − log q(z) of each, and q."""
        density = laplace_posterior(self.task, ys, xis).density
        zs = jax.vmap(lambda m: density.sample(key=jr.fold_in(self.key, m)))(jnp.arange(self.inner))
        log_ratios = jax.vmap(standard_normal_log_prob)(zs) - jax.vmap(density.log_prob)(zs)
        return jax.vmap(self.task.prior.from_latent)(zs), log_ratios, density

    @property
    def nle(self) -> int:
        return (self.inner + laplace_histories(self.task)) * self.task.horizon
