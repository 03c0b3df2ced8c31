"""The algebra of linear-Gaussian models.

    θ ~ N(μ₀, Σ₀),   y_t = a(ξ_t)ᵀθ + σ ε_t,   A = rows a(ξ_t)ᵀ
    Σ_T = (Σ₀⁻¹ + AᵀA/σ²)⁻¹,   μ_T = Σ_T(Σ₀⁻¹μ₀ + Aᵀy/σ²),   r_t = y_t − a_tᵀμ_T
    s^y_t = −r_t/σ²,   s^ξ_t = a′_tᵀ(μ_T r_t − Σ_T a_t)/σ²
    EIG = ½ log det(I + AΣ₀Aᵀ/σ²),   ∂EIG/∂ξ_t = a′_tᵀ Σ_T a_t/σ²

It is computed in whitened parameters θ = μ₀ + L z, Σ₀ = LLᵀ. With B = AL/σ the posterior precision
of z is G = I + BᵀB, which is well conditioned in any units and k × k, however long the
experiment."""

import abc
import functools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Scalar

from scorebed.tasks.base import IID, Gaussian
from scorebed.tasks.oracles.closed_form import ClosedForm, GaussianPosterior
from scorebed.tasks.priors import GaussianPrior

# An oracle must not use the low-precision products of an accelerator.
_dot = functools.partial(jnp.matmul, precision="highest")


class LinearModel(IID, Gaussian, ClosedForm):
    """A linear-Gaussian model up to its features a(ξ). The information gain does not depend on the
    outcomes.
    """

    prior: eqx.AbstractVar[GaussianPrior]
    noise: eqx.AbstractVar[float]

    @abc.abstractmethod
    def features(self, xi: Float[Array, " dx"]) -> Float[Array, " k"]:
        """a(ξ)."""

    @abc.abstractmethod
    def feature_jacobian(self, xi: Float[Array, " dx"]) -> Float[Array, "k dx"]:
        """a′(ξ) = ∂a/∂ξ."""

    def mean(
        self, theta: Float[Array, " k"], state: None, xi: Float[Array, " dx"]
    ) -> Float[Array, " 1"]:
        del state
        a = self.features(xi)
        return sum((a[i] * theta[i] for i in range(1, self.prior.dim)), start=a[0] * theta[0])[None]

    def scale(
        self, theta: Float[Array, " k"], state: None, xi: Float[Array, " dx"]
    ) -> tuple[float]:
        del theta, state, xi
        return (self.noise,)

    def posterior(self, ys: Float[Array, "T 1"], xis: Float[Array, "T dx"]) -> GaussianPosterior:
        """N(μ_T, Σ_T)."""
        A, L, B = self._design_matrices(xis)
        mu0 = jnp.asarray(self.prior.mean, xis.dtype)
        inverse = _inverse(_gram(B))
        z = _dot(inverse, _dot(B.T, ys[:, 0] - _dot(A, mu0)) / self.noise)
        return GaussianPosterior(mu0 + _dot(L, z), _dot(_dot(L, inverse), L.T))

    def marginal_log_prob(self, ys: Float[Array, "T 1"], xis: Float[Array, "T dx"]) -> Scalar:
        A, _, B = self._design_matrices(xis)
        G = _gram(B)
        whitened = (ys[:, 0] - _dot(A, jnp.asarray(self.prior.mean, xis.dtype))) / self.noise
        z = _dot(_inverse(G), _dot(B.T, whitened))
        # rᵀ(σ²I + AΣ₀Aᵀ)⁻¹r as a sum of squares: the fit's residual and the shift of z, without
        # cancellation.
        square = ((whitened - _dot(B, z)) ** 2).sum() + (z**2).sum()
        return -0.5 * (square + _log_det(G)) - len(ys) * math.log(
            self.noise * math.sqrt(2 * math.pi)
        )

    def score(
        self, ys: Float[Array, "T 1"], xis: Float[Array, "T dx"]
    ) -> tuple[Float[Array, "T 1"], Float[Array, "T dx"]]:
        posterior = self.posterior(ys, xis)
        A = jax.vmap(self.features)(xis)
        residual = ys - _dot(A, posterior.mean)[:, None]
        pull = (posterior.mean * residual - _dot(A, posterior.covariance)) / self.noise**2
        return -residual / self.noise**2, self._pull_back(xis, pull)

    def information_gain(self, ys: Float[Array, "T 1"], xis: Float[Array, "T dx"]) -> Scalar:
        del ys
        return self.eig(xis)

    def eig(self, xis: Float[Array, "T dx"]) -> Scalar:
        return 0.5 * _log_det(_gram(self._design_matrices(xis)[2]))

    def eig_of(self, xis: Float[Array, "T dx"], *, parameter: int) -> Scalar:
        """EIG on one parameter alone, the others being a nuisance: ½ log(Σ₀ᵢᵢ / Σ_Tᵢᵢ)."""
        _, L, B = self._design_matrices(xis)
        row = L[parameter]
        return 0.5 * jnp.log(_dot(row, row) / _dot(row, _dot(_inverse(_gram(B)), row)))

    def eig_gradient(self, xis: Float[Array, "T dx"]) -> Float[Array, "T dx"]:
        A, L, B = self._design_matrices(xis)
        covariance = _dot(_dot(L, _inverse(_gram(B))), L.T)
        return self._pull_back(xis, _dot(A, covariance) / self.noise**2)

    def _design_matrices(
        self, xis: Float[Array, "T dx"]
    ) -> tuple[Float[Array, "T k"], Float[Array, "k k"], Float[Array, "T k"]]:
        """A, L and B."""
        A, L = jax.vmap(self.features)(xis), jnp.asarray(self.prior.cholesky, xis.dtype)
        return A, L, _dot(A, L) / self.noise

    def _pull_back(
        self, xis: Float[Array, "T dx"], cotangents: Float[Array, "T k"]
    ) -> Float[Array, "T dx"]:
        """a′_tᵀ c_t."""
        return jax.vmap(lambda xi, c: _dot(self.feature_jacobian(xi).T, c))(xis, cotangents)


def _gram(B: Float[Array, "T k"]) -> Float[Array, "k k"]:
    """I + BᵀB."""
    return jnp.eye(B.shape[1], dtype=B.dtype) + _dot(B.T, B)


def _inverse(G: Float[Array, "k k"]) -> Float[Array, "k k"]:
    """G⁻¹; written out up to k = 2, where LAPACK calls would cost more than the arithmetic."""
    if G.shape[0] == 1:
        return 1 / G
    if G.shape[0] == 2:
        adjugate = jnp.stack([jnp.stack([G[1, 1], -G[0, 1]]), jnp.stack([-G[1, 0], G[0, 0]])])
        return adjugate / (G[0, 0] * G[1, 1] - G[0, 1] * G[1, 0])
    return jnp.linalg.inv(G)


def _log_det(G: Float[Array, "k k"]) -> Scalar:
    if G.shape[0] == 1:
        return jnp.log(G[0, 0])
    if G.shape[0] == 2:
        return jnp.log(G[0, 0] * G[1, 1] - G[0, 1] * G[1, 0])
    return jnp.linalg.slogdet(G)[1]
