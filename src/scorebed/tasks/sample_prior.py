"""A prior from samples, such as the posterior of an earlier study: an array, a dict of them, or an
InferenceData.

    prior = from_samples({"clearance [l/h]": clearance, "volume [l]": volume})

Samples have neither a density nor a latent map θ = f(z), and a prior needs both. A mixture of
Gaussians is fitted to them by maximum likelihood, with the number of components that minimises the
Bayesian information criterion, and θ is drawn coordinate by coordinate,

    x_i = F_i⁻¹(Φ(z_i) | x_1 … x_{i−1}),      F_i(x | …) = Σ_c w_c(…) Φ((x − m_ci(…)) / s_ci)

which is one-to-one, smooth, and has exactly the mixture's density. x is θ, or log θ for a parameter
that is positive in all samples and comes close to zero, so that its draws are positive too.

When wrong: the prior is the mixture, not the samples. Finer details (sharp edges, thin curved
ridges) are smoothed out, tails beyond the samples are Gaussian, and a few hundred samples of many
parameters support one component only."""

import math
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr
from jaxtyping import Array, Float, Scalar

from scorebed.errors import InvalidValueError, require
from scorebed.tasks.declare import quantity
from scorebed.tasks.priors import Prior
from scorebed.tasks.spaces import Quantity

LEAST = 50  # samples
MOST = 6  # components
ROUNDS = 60  # of expectation and maximisation
# Smallest standard deviation of a component, relative to that of the samples, so that repeated
# samples are not a spike.
FLOOR = 1e-3
HALVINGS = 26  # of the interval that holds a quantile
# A positive parameter whose mean is less than so many standard deviations from zero is modelled by
# its logarithm.
NEAR_ZERO = 4.0

Numbers = tuple[float, ...]


class Mixture(eqx.Module):
    """Σ_c w_c N(m_c, L_c L_cᵀ), and the map from N(0, I) to it. Python numbers, so that a task
    holds no arrays.
    """

    weights: Numbers = eqx.field(static=True)
    means: tuple[Numbers, ...] = eqx.field(static=True)
    factors: tuple[tuple[Numbers, ...], ...] = eqx.field(static=True)

    def push(self, z: Float[Array, " k"]) -> Float[Array, " k"]:
        """x(z), a triangular map: x_i depends on z_1 … z_i."""
        log_w = self._log_weights(z.dtype)
        xs: list[Scalar] = []
        es: list[Float[Array, " C"]] = []
        for i in range(len(self.means[0])):
            mean, scale = self._given(i, es, z.dtype)
            xs.append(_quantile(z[i], log_w, mean, scale))
            es.append((xs[-1] - mean) / scale)
            log_w = log_w - 0.5 * es[-1] ** 2 - jnp.log(scale)
        return jnp.stack(xs)

    def log_prob(self, x: Float[Array, " k"]) -> Scalar:
        """The density of the mixture."""
        total = self._log_weights(x.dtype)
        es: list[Float[Array, " C"]] = []
        for i in range(len(self.means[0])):
            mean, scale = self._given(i, es, x.dtype)
            es.append((x[i] - mean) / scale)
            total = total - 0.5 * es[-1] ** 2 - jnp.log(scale) - 0.5 * math.log(2 * math.pi)
        return jax.nn.logsumexp(total)

    def _log_weights(self, dtype: Any) -> Float[Array, " C"]:
        return jnp.log(jnp.asarray(self.weights, dtype))

    def _given(
        self, i: int, es: list[Float[Array, " C"]], dtype: Any
    ) -> tuple[Float[Array, " C"], Float[Array, " C"]]:
        """Mean and standard deviation of x_i in each component, given the residuals of earlier
        coordinates.
        """
        mean = jnp.asarray([m[i] for m in self.means], dtype)
        for j, e in enumerate(es):
            mean = mean + jnp.asarray([f[i][j] for f in self.factors], dtype) * e
        return mean, jnp.asarray([f[i][i] for f in self.factors], dtype)


def _quantile(
    z: Scalar, log_weights: Float[Array, " C"], mean: Float[Array, " C"], scale: Float[Array, " C"]
) -> Scalar:
    """x with F(x) = Φ(z). It lies between the components' quantiles, m_c + s_c z, and is found by
    bisection.

    The equation is solved in the tail in which z lies, so that no tail is rounded away. Gradients
    are those of the implicit function."""
    if len(mean) == 1:
        return mean[0] + scale[0] * z
    weights, side = jax.nn.softmax(log_weights), jnp.where(z > 0, -1.0, 1.0).astype(z.dtype)

    def excess(x: Scalar) -> Scalar:
        return side * ((weights * ndtr(side * (x - mean) / scale)).sum() - ndtr(side * z))

    def halve(_: Any, ends: tuple[Scalar, Scalar]) -> tuple[Scalar, Scalar]:
        low, high = ends
        middle = (low + high) / 2
        above = excess(middle) > 0
        return jnp.where(above, low, middle), jnp.where(above, middle, high)

    quantiles = jax.lax.stop_gradient(mean + scale * z)
    low, high = jax.lax.fori_loop(0, HALVINGS, halve, (quantiles.min(), quantiles.max()))
    x = jax.lax.stop_gradient((low + high) / 2)
    slope = (weights / scale * jnp.exp(-0.5 * ((x - mean) / scale) ** 2)).sum() / math.sqrt(
        2 * math.pi
    )
    step = -excess(x) / jnp.maximum(jax.lax.stop_gradient(slope), jnp.finfo(x.dtype).tiny)
    # Only the gradient of the step is used: its value is rounding where the slope is almost zero.
    return x + (step - jax.lax.stop_gradient(step))


class SamplesPrior(Prior):
    """The mixture that was fitted to samples, in their units. Made by `from_samples`."""

    quantities: tuple[Quantity, ...] = eqx.field(static=True)
    positive: tuple[bool, ...] = eqx.field(static=True)
    centre: Numbers = eqx.field(static=True)
    size: Numbers = eqx.field(static=True)
    mixture: Mixture

    def from_latent(self, z: Float[Array, " k"]) -> Float[Array, " k"]:
        x = self.mixture.push(z)
        rows = zip(self.positive, self.centre, self.size, strict=True)
        plain = [(logs, m + s * x[i]) for i, (logs, m, s) in enumerate(rows)]
        return jnp.stack([jnp.exp(v) if logs else v for logs, v in plain])

    def log_prob(self, theta: Float[Array, " k"]) -> Scalar:
        logs = jnp.asarray(self.positive)
        safe = jnp.where(logs, theta, 1)  # the unused branch must not be NaN
        values = jnp.where(logs, jnp.log(jnp.where(safe > 0, safe, 1)), theta)
        size = jnp.asarray(self.size, theta.dtype)
        x = (values - jnp.asarray(self.centre, theta.dtype)) / size
        density = self.mixture.log_prob(x) - jnp.log(size).sum() - jnp.where(logs, values, 0).sum()
        return jnp.where(jnp.all(safe > 0), density, -jnp.inf)


class LatentMixture(Prior):
    """θ = f(x) with x from a mixture and f the latent map of another prior: that prior, updated by
    data. It has no density.
    """

    base: Prior
    mixture: Mixture
    quantities: tuple[Quantity, ...] = eqx.field(static=True)

    def __init__(self, base: Prior, mixture: Mixture):
        self.base, self.mixture, self.quantities = base, mixture, base.quantities

    def from_latent(self, z: Float[Array, " k"]) -> Float[Array, " k"]:
        return self.base.from_latent(self.mixture.push(z))

    def log_prob(self, theta: Float[Array, " k"]) -> Scalar:
        del theta
        raise InvalidValueError(
            "the density of a prior after a history",
            got="a mixture mapped by another prior",
            expected="a prior with a density",
            fix="use its draws, or give them to from_samples.",
        )


def from_samples(samples: Any, names: Any = None, *, components: int = MOST) -> SamplesPrior:
    """A prior from samples, such as the posterior of an earlier study: a Gaussian mixture fitted to
    them.

    Variables with several values become "name 1", "name 2" and so on.

    Arguments:
        samples: a dict of arrays whose first axis counts samples, an array [N, k] with `names` for
            its columns, or anything with a `.posterior` of arrays [chain, draw, …], such as arviz's
            InferenceData.
        names: a sequence of variables, or a dict that selects variables and gives their names, as
            in {"cl": "clearance [l/h]"}; all variables if left out.
        components: the largest number of components of the mixture.

    Returns:
        The prior, for the attribute `prior` of a task.

    Raises:
        InvalidValueError: if there are fewer than 50 samples, some are not finite, a variable is
            constant, or names and shapes do not fit.

    Example:
        >>> draws = jr.normal(jr.key(0), (200,))
        >>> prior = sb.from_samples({"rate [1/h]": jnp.exp(draws)}, components=2)
        >>> prior.quantities[0].unit
        '1/h'
    """
    table, labels = _table(samples, names)
    quantities = tuple(quantity(label) for label in labels)
    n = len(table)
    require(
        n >= LEAST and bool(np.isfinite(table).all()),
        "the samples of a prior",
        got=f"{n} samples, with {int((~np.isfinite(table)).sum())} numbers that are not finite",
        expected=f"at least {LEAST} finite ones",
        fix="draw more samples, and drop divergent ones.",
    )
    spread = table.std(0)
    flat = [
        q.name
        for q, s, m in zip(quantities, spread, np.abs(table).max(0), strict=True)
        if s <= 1e-9 * m
    ]
    require(
        not flat,
        "the samples of a prior",
        got=f"only one value of {', '.join(flat)}",
        expected="different values",
        fix="leave known parameters out of the prior.",
    )
    positive = (table.min(0) > 0) & (table.mean(0) < NEAR_ZERO * spread)
    values = np.where(positive, np.log(np.where(positive, table, 1.0)), table)
    centre, size = values.mean(0), values.std(0)
    mixture = fit_mixture((values - centre) / size, components=components)
    return SamplesPrior(
        quantities, tuple(map(bool, positive)), _floats(centre), _floats(size), mixture
    )


def fit_mixture(x: Float[np.ndarray, "N k"], *, components: int = MOST) -> Mixture:
    """Gaussians by expectation maximisation; their number minimises the BIC. Deterministic: equal
    samples give equal mixtures.
    """
    require(
        components >= 1,
        "the components of a mixture",
        got=components,
        expected="at least one",
        fix="leave it out for 6.",
    )
    n, k = x.shape
    best: tuple[float, Any] = (math.inf, None)
    for count in range(1, components + 1):
        if count > 1 and n < 10 * count * (k + 1):
            break
        log_likelihood, parts = _maximise(x, count)
        size = count - 1 + count * k + count * k * (k + 1) // 2
        criterion = size * math.log(n) - 2 * log_likelihood
        if criterion < best[0]:
            best = (criterion, parts)
    weights, means, covariances = best[1]
    factors = np.linalg.cholesky(covariances)
    return Mixture(
        _floats(weights), tuple(map(_floats, means)), tuple(tuple(map(_floats, f)) for f in factors)
    )


def _maximise(x: np.ndarray, count: int) -> tuple[float, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    n, k = x.shape
    random = np.random.default_rng(count)
    centres = x[[random.integers(n)]]
    while len(centres) < count:  # far from the others, as in k-means++
        distance = ((x[:, None] - centres) ** 2).sum(-1).min(1)
        centres = np.concatenate([centres, x[[random.choice(n, p=distance / distance.sum())]]])
    share = np.eye(count)[((x[:, None] - centres) ** 2).sum(-1).argmin(1)]
    total, parts = -math.inf, None
    for _ in range(1 if count == 1 else ROUNDS):
        mass = share.sum(0) + 1e-9
        means = share.T @ x / mass[:, None]
        residual = x[:, None] - means
        squares = np.einsum("nc,nci,ncj->cij", share, residual, residual)
        covariances = squares / mass[:, None, None] + FLOOR**2 * np.eye(k)
        parts = (mass / mass.sum(), means, covariances)
        log_each = _log_parts(x, parts)
        log_total = np.logaddexp.reduce(log_each, axis=1)
        share = np.exp(log_each - log_total[:, None])
        before, total = total, float(log_total.sum())
        if total - before < 1e-5 * n:
            break
    assert parts is not None, "there is at least one round"
    return total, parts


def _log_parts(x: np.ndarray, parts: tuple[np.ndarray, np.ndarray, np.ndarray]) -> np.ndarray:
    """log w_c N(x_n; m_c, Σ_c)."""
    weights, means, covariances = parts
    factors = np.linalg.cholesky(covariances)
    e = np.stack(
        [np.linalg.solve(f, (x - m).T).T for f, m in zip(factors, means, strict=True)], axis=1
    )
    log_det = np.log(np.diagonal(factors, axis1=1, axis2=2)).sum(1)
    return np.asarray(
        np.log(weights) - 0.5 * (e**2).sum(-1) - log_det - 0.5 * x.shape[1] * math.log(2 * math.pi)
    )


def _table(samples: Any, names: Any) -> tuple[np.ndarray, list[str]]:
    """One row per sample, and one label per column."""
    leading = 1
    if hasattr(samples, "posterior"):
        samples, leading = samples.posterior, 2
    if hasattr(samples, "data_vars"):  # a dataset of arrays [chain, draw, …]
        samples, leading = samples.data_vars, 2
    if not isinstance(samples, Mapping):
        table = np.asarray(samples, np.float64)
        fits = table.ndim == 2 and isinstance(names, list | tuple) and len(names) == table.shape[1]
        require(
            fits,
            "the samples of a prior",
            got=f"an array of shape {table.shape} and the names {names!r}",
            expected="an array [N, k] and k names, or a dict of arrays",
            fix='write from_samples({"rate [1/h]": rates}).',
        )
        return table, list(names)
    shown = names if isinstance(names, Mapping) else {name: name for name in (names or samples)}
    columns, labels = [], []
    for name, label in shown.items():
        require(
            name in samples,
            "the samples of a prior",
            got=f"no variable '{name}'",
            expected=f"one of {', '.join(map(str, samples))}",
            fix="choose among the variables of the samples.",
        )
        values = np.asarray(samples[name], np.float64)
        require(
            values.ndim >= leading,
            f"the samples of '{name}'",
            got=f"an array of shape {values.shape}",
            expected=f"at least {leading} axes",
            fix="give one number per sample.",
        )
        values = values.reshape(math.prod(values.shape[:leading]), -1)
        columns.append(values)
        q = quantity(str(label))
        unit = f" [{q.unit}]" if q.unit else ""
        labels += (
            [str(label)]
            if values.shape[1] == 1
            else [f"{q.name} {i + 1}{unit}" for i in range(values.shape[1])]
        )
    sizes = {len(column) for column in columns}
    require(
        len(sizes) == 1,
        "the samples of a prior",
        got=f"{sorted(sizes)} samples",
        expected="the same number of each variable",
        fix="give joint samples: row n of every array is one sample.",
    )
    return np.concatenate(columns, axis=1), labels


def _floats(values: np.ndarray) -> Numbers:
    return tuple(float(v) for v in values)
