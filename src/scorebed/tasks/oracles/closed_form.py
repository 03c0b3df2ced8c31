"""Tasks with closed-form answers: marginal likelihood, its score, information gain and EIG.

Estimators and bounds are tested against them. The identity behind each score is the paper's
(marginal score matching):

    ∇ log p(y | ξ) = E_{p(θ | y, ξ)}[∇ log p(y | ξ, θ)],   ∇ with respect to (y_{1:T}, ξ_{1:T})
"""

import abc

import equinox as eqx
from jaxtyping import Array, Float, Scalar

from scorebed.tasks.base import Task


class GaussianPosterior(eqx.Module):
    """p(θ | y_{1:T}, ξ_{1:T}) = N(mean, covariance)."""

    mean: Float[Array, " k"]
    covariance: Float[Array, "k k"]


class ClosedForm(Task):
    """A task with closed-form answers. Each is for one experiment and costs no NLE.

    The marginal likelihood and its score hold for static and adaptive designs alike. `eig` and
    `eig_gradient` are for designs fixed before the experiment; the EIG of an adaptive policy is the
    mean of `information_gain` over its rollouts."""

    @abc.abstractmethod
    def marginal_log_prob(self, ys: Float[Array, "T dy"], xis: Float[Array, "T dx"]) -> Scalar:
        """log p(y_{1:T} | ξ_{1:T})."""

    @abc.abstractmethod
    def score(
        self, ys: Float[Array, "T dy"], xis: Float[Array, "T dx"]
    ) -> tuple[Float[Array, "T dy"], Float[Array, "T dx"]]:
        """(s_y, s_ξ) = (∂/∂y_{1:T}, ∂/∂ξ_{1:T}) log p(y_{1:T} | ξ_{1:T}), not by
        differentiation.
        """

    @abc.abstractmethod
    def information_gain(self, ys: Float[Array, "T dy"], xis: Float[Array, "T dx"]) -> Scalar:
        """H[p(θ)] − H[p(θ | y_{1:T}, ξ_{1:T})] of one history."""

    @abc.abstractmethod
    def eig(self, xis: Float[Array, "T dx"]) -> Scalar:
        """Expected information gain of static designs."""

    @abc.abstractmethod
    def eig_gradient(self, xis: Float[Array, "T dx"]) -> Float[Array, "T dx"]:
        """∂ EIG / ∂ξ_{1:T} of static designs, not by differentiation."""

    @abc.abstractmethod
    def optimal_eig(self) -> float:
        """The largest EIG of any policy, adaptive or static; raises `ScorebedError` if there is no
        closed form.
        """
