"""From one standard normal number to a draw of a scalar distribution, differentiable in the number
and in the distribution's parameters.

    x = F⁻¹(Φ(z)),    dx/dα = −(∂F/∂α)(x) / p(x)

Families with a closed form use it, written for both tails: Φ(z) itself rounds to one beyond z ≈ 5
in single precision. The others solve F(x) = Φ(z), or 1 − F(x) = Φ(−z) in the upper half, by
Newton's steps inside of an interval, and are differentiated implicitly. Whatever else has a
quantile function in numpyro uses that.

A few distributions of vectors have a map from as many numbers: N(μ, LLᵀ) is μ + L z, and a point of
a simplex is made of gamma variables, one more than it has degrees of freedom.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.special import (
    betaln,
    digamma,
    gammainc,
    gammaincc,
    gammaln,
    log_ndtr,
    ndtr,
    ndtri,
)
from jaxtyping import Array, Float
from numpyro.distributions.truncated import (
    LeftTruncatedDistribution,
    RightTruncatedDistribution,
    TwoSidedTruncatedDistribution,
)

from scorebed.errors import ScorebedError

Map = Callable[[Float[Array, "*n"]], Float[Array, "*n"]]
Search = tuple[Array, Array, Array, Array, Array]  # steps, whether it goes on, t and its interval

STEPS = 12  # of Newton's, or halvings, towards a quantile, at most
CLOSE = 0.1  # in square roots of the precision: a step that is shorter was the last one
# Logarithms of outcomes that stay away from the ends of single precision, derivatives included,
# and the standard deviations that they keep from there.
FARTHEST, SURELY = 66.0, 6.0
NODES = 48  # of the quadrature behind ∂F/∂a of the beta distribution


# What a refusal offers.
WORKING = (
    "Normal, LogNormal, StudentT, Laplace, Cauchy, Logistic, Gumbel, Gamma, InverseGamma, Chi2, "
    "Beta, Exponential, Weibull, Pareto, Uniform, HalfNormal, HalfCauchy, Kumaraswamy and others "
    "with a quantile function, mixtures, truncated and transformed ones of these; for parameters "
    "also MultivariateNormal, Dirichlet, LKJ and LKJCholesky"
)


@functools.singledispatch
def latent_map(distribution: dist.Distribution) -> Map:
    """z ~ N(0, 1) ↦ a draw from a scalar `distribution`, or a vector ↦ a draw from one of vectors;
    register a type here if its quantile function is missing.

    The general case is the quantile function at Φ(z).
    """

    def by_quantile(z: Array) -> Array:
        try:
            return distribution.icdf(ndtr(z))
        # Some of numpyro's quantile functions need a library that is not there.
        except (NotImplementedError, ImportError) as error:
            raise ScorebedError(
                f"the latent map of a prior, got {type(distribution).__name__}, which has no "
                f"quantile function, expected one of {WORKING}. "
                f"Fix: write it as a transformation of one of these."
            ) from error

    return by_quantile


@latent_map.register
def _(distribution: dist.Normal) -> Map:
    return lambda z: distribution.loc + distribution.scale * z


@latent_map.register
def _(distribution: dist.ExpandedDistribution) -> Map:
    return latent_map(distribution.base_dist)


@latent_map.register
def _(distribution: dist.Independent) -> Map:
    return latent_map(distribution.base_dist)


@latent_map.register
def _(distribution: dist.TransformedDistribution) -> Map:
    base = latent_map(distribution.base_dist)

    def push(z: Array) -> Array:
        x = base(z)
        for transform in distribution.transforms:
            x = transform(x)
        return x

    return push


@functools.singledispatch
def representable(distribution: dist.Distribution) -> Any:
    """The distribution of an outcome, kept to what single precision can hold. A log-normal one in
    the far tail of a prior would come out as zero or infinite, and have no density there: its
    median stays between e^−66 and e^66, six standard deviations less. Sampler and density are still
    those of one distribution.
    """
    return distribution


@representable.register
def _(distribution: dist.LogNormal) -> Any:
    most = jnp.maximum(FARTHEST - SURELY * distribution.scale, 0)
    return dist.LogNormal(jnp.clip(distribution.loc, -most, most), distribution.scale)


@representable.register
def _(distribution: dist.ExpandedDistribution) -> Any:
    base = representable(distribution.base_dist)
    return distribution if base is distribution.base_dist else base.expand(distribution.batch_shape)


@representable.register
def _(distribution: dist.Independent) -> Any:
    base = representable(distribution.base_dist)
    own = distribution.reinterpreted_batch_ndims
    return distribution if base is distribution.base_dist else base.to_event(own)


class TailFunctions(NamedTuple):
    """F(x) and 1 − F(x), each precise where it is small, log p(x), and where there is a way to
    spare one of the two, the one that is asked for: 1 − F(x) where the first argument is true.
    """

    below: Map
    above: Map
    log_prob: Map
    either: Callable[[Array, Array], Array] | None = None

    def side(self, upper: Array, x: Array) -> Array:
        """1 − F(x) where `upper`, F(x) elsewhere."""
        if self.either is not None:
            return self.either(upper, x)
        return jnp.where(upper, self.above(x), self.below(x))


@functools.singledispatch
def tails(distribution: dist.Distribution) -> TailFunctions:
    """The two tails of a scalar distribution; by default from its distribution function."""
    return TailFunctions(distribution.cdf, lambda x: 1 - distribution.cdf(x), distribution.log_prob)


@tails.register
def _(distribution: dist.Normal) -> TailFunctions:
    standard = lambda x: (x - distribution.loc) / distribution.scale  # noqa: E731
    return TailFunctions(
        lambda x: ndtr(standard(x)), lambda x: ndtr(-standard(x)), distribution.log_prob
    )


@tails.register
def _(distribution: dist.Gamma) -> TailFunctions:
    shape, rate = distribution.concentration, distribution.rate
    return TailFunctions(
        lambda x: gammainc(*_same(shape, rate * x)),
        lambda x: gammaincc(*_same(shape, rate * x)),
        distribution.log_prob,
    )


@tails.register
def _(distribution: dist.Beta) -> TailFunctions:
    a, b = distribution.concentration1, distribution.concentration0

    def either(upper: Array, x: Array) -> Array:
        turned = jnp.where(upper, b, a), jnp.where(upper, a, b), jnp.where(upper, 1 - x, x)
        return beta_cdf(*_same(*turned))

    return TailFunctions(
        lambda x: beta_cdf(*_same(a, b, x)),
        lambda x: beta_cdf(*_same(b, a, 1 - x)),
        distribution.log_prob,
        either,
    )


@tails.register
def _(distribution: dist.StudentT) -> TailFunctions:
    df, loc, scale = distribution.df, distribution.loc, distribution.scale

    def tail(x: Array) -> tuple[Array, Array]:
        t = (x - loc) / scale
        # Not zero, where the derivative of the beta distribution is infinite.
        square = jnp.maximum(t**2, 1e-12)
        shape, half, inner, outer = _same(0.5 * df, 0.5, square / (df + square), df / (df + square))
        # Near the middle the outer ratio rounds to one; the inner one does not.
        central = inner < 0.5
        found = beta_cdf(
            jnp.where(central, half, shape),
            jnp.where(central, shape, half),
            jnp.where(central, inner, outer),
        )
        return jnp.where(central, 0.5 - 0.5 * found, 0.5 * found), t

    def below(x: Array) -> Array:
        outer, t = tail(x)
        return jnp.where(t < 0, outer, 1 - outer)

    def above(x: Array) -> Array:
        outer, t = tail(x)
        return jnp.where(t < 0, 1 - outer, outer)

    return TailFunctions(below, above, distribution.log_prob)


@tails.register
def _(distribution: dist.ExpandedDistribution) -> TailFunctions:
    return tails(distribution.base_dist)


def quantile(
    z: Float[Array, "*n"],
    distribution: Any,
    low: Float[Array, "*n"],
    high: Float[Array, "*n"],
    start: Float[Array, "*n"],
    to_x: Map = lambda t: t,
) -> Float[Array, "*n"]:
    """x = to_x(t) with F(x) = Φ(z) and t between `low` and `high`; `to_x` rises. Newton's steps in
    the logarithm of the tail, which is nearly straight, from `start`, until what is left is
    rounding; halves of what is left between the ends where a step would leave it. Gradients are
    those of the implicit function.
    """
    upper = z > 0
    tail = ndtr(-jnp.abs(z))
    tiny = jnp.finfo(z.dtype).tiny
    # Newton's next step is about the square of the last one.
    close = CLOSE * math.sqrt(jnp.finfo(z.dtype).eps)
    # The search itself is not differentiated: its parameters are held fixed.
    of, held = tails(distribution), tails(_held(distribution))

    sought = jax.lax.stop_gradient(tail)

    def step(carry: Search) -> Search:
        count, _, t, low, high = carry
        x, stretch = jax.jvp(to_x, (t,), (jnp.ones_like(t),))
        found = held.side(upper, x)
        over = jnp.where(upper, found < sought, found > sought)
        low, high = jnp.where(over, low, t), jnp.where(over, t, high)
        gap = jnp.log(jnp.maximum(found, tiny)) - jnp.log(jnp.maximum(sought, tiny))
        slope = jnp.exp(held.log_prob(x)) * stretch / jnp.maximum(found, tiny)
        new = t + jnp.where(upper, gap, -gap) / jnp.maximum(slope, tiny)
        # A step may leave the interval by rounding, next to the solution, or by being too long.
        short = jnp.abs(new - t) < 1e-3 * (1 + jnp.abs(t))
        inside = ((new >= low) & (new <= high)) | short
        new = jnp.where(inside, jnp.clip(new, low, high), 0.5 * (low + high))
        going = (jnp.abs(new - t) > close * (1 + jnp.abs(t))).any()
        return count + 1, going, new, low, high

    low, high = jnp.broadcast_to(low, z.shape), jnp.broadcast_to(high, z.shape)
    first = jnp.clip(jnp.broadcast_to(start, z.shape), low, high)
    carry = jax.lax.stop_gradient((jnp.zeros((), jnp.int32), jnp.ones((), bool), first, low, high))
    found = jax.lax.while_loop(lambda carry: carry[1] & (carry[0] < STEPS), step, carry)
    x = jax.lax.stop_gradient(to_x(found[2]))
    excess = jnp.where(upper, -1, 1) * (of.side(upper, x) - tail)
    density = jax.lax.stop_gradient(jnp.exp(held.log_prob(x)))
    last = -excess / jnp.maximum(density, tiny)
    # Only the gradient of the last step is used: its value is rounding.
    return x + (last - jax.lax.stop_gradient(last))


def _held(distribution: Any) -> Any:
    """With parameters that are not differentiated."""
    return jax.tree.map(jax.lax.stop_gradient, distribution)


@jax.custom_jvp
def beta_cdf(a: Array, b: Array, x: Array) -> Array:
    """The regularised incomplete beta function I_x(a, b), differentiable in all three."""
    return jax.scipy.special.betainc(a, b, x)


@beta_cdf.defjvp
def _(primals: tuple[Array, ...], tangents: tuple[Array, ...]) -> tuple[Array, Array]:
    """JAX has no derivative in a and b. With t = x s^{1/c}, c = min(a, 1), no end is singular,

        I_x(a, b) = x^a / (c B(a, b)) ∫₀¹ s^{a/c−1} (1 − x s^{1/c})^{b−1} ds,

    and the integrand's derivatives are summed at Gauss–Legendre nodes, from whichever end is nearer
    in probability.
    """
    (a, b, x), (da, db, dx) = primals, tangents
    tiny = jnp.finfo(x.dtype).tiny
    inside = jnp.clip(x, tiny, 1 - jnp.finfo(x.dtype).epsneg)
    log_p = (a - 1) * jnp.log(inside) + (b - 1) * jnp.log1p(-inside) - betaln(a, b)
    left = inside * (a + b) <= a
    near, far = jnp.where(left, a, b)[..., None], jnp.where(left, b, a)[..., None]
    end = jnp.where(left, inside, 1 - inside)[..., None]
    nodes, weights = (jnp.asarray(v, x.dtype) for v in np.polynomial.legendre.leggauss(NODES))
    log_s, w = jnp.log(0.5 * (nodes + 1)), 0.5 * weights
    c = jnp.minimum(near, 1)
    rest = jnp.log1p(-jnp.minimum(end * jnp.exp(log_s / c), 1 - jnp.finfo(x.dtype).epsneg))
    front = near * jnp.log(end) - betaln(near, far) - jnp.log(c)
    each = w * jnp.exp(front + (near / c - 1) * log_s + (far - 1) * rest)
    total = digamma(near + far)
    of_near = (each * (jnp.log(end) + log_s / c - digamma(near) + total)).sum(-1)
    of_far = (each * (rest - digamma(far) + total)).sum(-1)
    of_a = jnp.where(left, of_near, -of_far)
    of_b = jnp.where(left, of_far, -of_near)
    return beta_cdf(a, b, x), of_a * da + of_b * db + jnp.exp(log_p) * dx


def _same(*arrays: Any) -> list[Array]:
    """Of one shape and one floating type."""
    kinds = [jnp.asarray(a).dtype for a in arrays]
    kind = np.result_type(*(each for each in kinds if jnp.issubdtype(each, jnp.floating)))
    return list(jnp.broadcast_arrays(*(jnp.asarray(a, kind) for a in arrays)))


# --- closed forms --------------------------------------------------------------------------------


def _scaled(distribution: Any, standard: Map) -> Map:
    return lambda z: distribution.loc + distribution.scale * standard(z)


def _cotangent(z: Array) -> Array:
    """The standard Cauchy quantile, −cot(π Φ(z)), from the nearer tail."""
    tail = jnp.pi * ndtr(-jnp.abs(z))
    return jnp.sign(z) * jnp.where(z == 0, 0, 1 / jnp.tan(jnp.where(z == 0, 1, tail)))


@latent_map.register
def _(distribution: dist.Laplace) -> Map:
    def standard(z: Array) -> Array:
        return -jnp.sign(z) * (math.log(2) + log_ndtr(-jnp.abs(z)))

    return _scaled(distribution, standard)


@latent_map.register
def _(distribution: dist.Cauchy) -> Map:
    return _scaled(distribution, _cotangent)


@latent_map.register
def _(distribution: dist.Logistic) -> Map:
    return _scaled(distribution, lambda z: log_ndtr(z) - log_ndtr(-z))


@latent_map.register
def _(distribution: dist.Gumbel) -> Map:
    return _scaled(distribution, lambda z: -jnp.log(-log_ndtr(z)))


@latent_map.register
def _(distribution: dist.Exponential) -> Map:
    return lambda z: -log_ndtr(-z) / distribution.rate


@latent_map.register
def _(distribution: dist.Weibull) -> Map:
    return lambda z: distribution.scale * (-log_ndtr(-z)) ** (1 / distribution.concentration)


@latent_map.register
def _(distribution: dist.Kumaraswamy) -> Map:
    a, b = distribution.concentration1, distribution.concentration0
    return lambda z: (-jnp.expm1(log_ndtr(-z) / b)) ** (1 / a)


@latent_map.register
def _(distribution: dist.HalfNormal) -> Map:
    return lambda z: -distribution.scale * ndtri(0.5 * ndtr(-z))


@latent_map.register
def _(distribution: dist.HalfCauchy) -> Map:
    def standard(z: Array) -> Array:
        half = 0.5 * jnp.pi
        return jnp.where(
            z < 0,
            jnp.tan(half * ndtr(jnp.minimum(z, 0))),
            1 / jnp.tan(half * ndtr(-jnp.maximum(z, 0))),
        )

    return lambda z: distribution.scale * standard(z)


# --- solved --------------------------------------------------------------------------------------


@latent_map.register
def _(distribution: dist.Gamma) -> Map:
    unit = dist.Gamma(distribution.concentration, 1.0)

    def push(z: Array) -> Array:
        shape = jnp.broadcast_to(unit.concentration, z.shape)
        # Wilson and Hilferty's cube root of a normal; where that is not positive, the power law at
        # zero.
        root = 1 - 1 / (9 * shape) + z / (3 * jnp.sqrt(shape))
        cube = jnp.log(shape) + 3 * jnp.log(jnp.maximum(root, 0.25))
        power = (log_ndtr(z) + gammaln(shape + 1)) / shape
        start = jnp.where(root > 0.25, cube, power)
        ends = jnp.full_like(z, -85.0), jnp.full_like(z, 20.0)
        return quantile(z, unit, *ends, start, jnp.exp) / distribution.rate

    return push


@latent_map.register
def _(distribution: dist.Beta) -> Map:
    def push(z: Array) -> Array:
        a, b = distribution.concentration1, distribution.concentration0
        ends = jnp.full_like(z, -85.0), jnp.full_like(z, 16.0)
        start = jnp.log(a / b) + z * jnp.sqrt(1 / a + 1 / b)
        return quantile(z, distribution, *ends, start, jax.nn.sigmoid)

    return push


@latent_map.register
def _(distribution: dist.StudentT) -> Map:
    unit = dist.StudentT(distribution.df, 0.0, 1.0)

    def push(z: Array) -> Array:
        # sinh makes both tails, which are powers, straight.
        ends = jnp.full_like(z, -40.0), jnp.full_like(z, 40.0)
        t = quantile(z, unit, *ends, jnp.arcsinh(z), jnp.sinh)
        return distribution.loc + distribution.scale * t

    return push


# --- vectors -------------------------------------------------------------------------------------


@latent_map.register
def _(distribution: dist.MultivariateNormal) -> Map:
    return lambda z: distribution.loc + distribution.scale_tril @ z


@latent_map.register
def _(distribution: dist.Dirichlet) -> Map:
    each = latent_map(dist.Gamma(distribution.concentration, 1.0))

    def push(z: Array) -> Array:
        gammas = each(z)
        return gammas / gammas.sum(-1, keepdims=True)

    return push


def cholesky_of_partial(partial: Float[Array, " m"], dim: int) -> Float[Array, "d d"]:
    """The Cholesky factor of the correlation matrix with these partial correlations, row by row
    below the diagonal: L_ij = r_ij √(1 − Σ_{k<j} L_ik²).
    """
    rows, start = [], 0
    for i in range(dim):
        left, row = jnp.ones((), partial.dtype), []
        for j in range(i):
            row.append(partial[start + j] * jnp.sqrt(left))
            left = left * (1 - partial[start + j] ** 2)
        start += i
        zeros = [jnp.zeros((), partial.dtype)] * (dim - i - 1)
        rows.append(jnp.stack([*row, jnp.sqrt(left), *zeros]))
    return jnp.stack(rows)


def partial_correlations(concentration: Any, dim: int, z: Float[Array, " m"]) -> Float[Array, " m"]:
    """Of LKJ(concentration): r_ij = 2 b − 1 with b ~ Beta(α_j, α_j), α_j = η + (d − 2 − j) / 2 for
    column j = 0 … (C-vine, Lewandowski, Kurowicka and Joe 2009).
    """
    columns = np.asarray([j for i in range(dim) for j in range(i)], np.float32)
    shape = concentration + 0.5 * (dim - 2 - jnp.asarray(columns, z.dtype))
    return 2 * latent_map(dist.Beta(shape, shape))(z) - 1


# --- made of others ------------------------------------------------------------------------------


@tails.register
def _(distribution: dist.MixtureSameFamily) -> TailFunctions:
    of, probs = tails(distribution.component_distribution), distribution.mixing_distribution.probs

    def mixed(side: Map) -> Map:
        return lambda x: (probs * side(x[..., None])).sum(-1)

    return TailFunctions(mixed(of.below), mixed(of.above), distribution.log_prob)


@tails.register
def _(distribution: dist.MixtureGeneral) -> TailFunctions:
    each = [tails(part) for part in distribution.component_distributions]
    probs = distribution.mixing_distribution.probs

    def mixed(sides: list[Map]) -> Map:
        return lambda x: sum(
            (probs[..., i] * side(x) for i, side in enumerate(sides)),
            start=jnp.zeros((), x.dtype),
        )

    below, above = mixed([part.below for part in each]), mixed([part.above for part in each])
    return TailFunctions(below, above, distribution.log_prob)


@latent_map.register
def _(distribution: dist.MixtureSameFamily) -> Map:
    parts = distribution.component_distribution
    count = distribution.mixing_distribution.probs.shape[-1]

    def push(z: Array) -> Array:
        wide = jnp.broadcast_to(z[..., None], (*z.shape, count))
        ends = latent_map(_held(parts))(wide)
        low, high = ends.min(-1), ends.max(-1)
        return quantile(z, distribution, low, high, 0.5 * (low + high))

    return push


@latent_map.register
def _(distribution: dist.MixtureGeneral) -> Map:
    parts = distribution.component_distributions

    def push(z: Array) -> Array:
        ends = jnp.stack([jnp.broadcast_to(latent_map(_held(part))(z), z.shape) for part in parts])
        low, high = ends.min(0), ends.max(0)
        return quantile(z, distribution, low, high, 0.5 * (low + high))

    return push


def _truncated(base: Any, low: Any, high: Any) -> Map:
    """The base's map at z′ with Φ(z′) = F(low) + (F(high) − F(low)) Φ(z), by the smaller tail."""
    of = tails(base)

    def push(z: Array) -> Array:
        zero = jnp.zeros_like(z)
        below = zero if low is None else of.below(low + zero)
        not_below = zero + 1 if low is None else of.above(low + zero)
        above = zero if high is None else of.above(high + zero)
        not_above = zero + 1 if high is None else of.below(high + zero)
        mass = jnp.where(below < 0.5, not_above - below, not_below - above)
        tiny, most = jnp.finfo(z.dtype).tiny, 1 - jnp.finfo(z.dtype).epsneg
        under = jnp.clip(below + mass * ndtr(z), tiny, most)
        over = jnp.clip(above + mass * ndtr(-z), tiny, most)
        x = latent_map(base)(
            jnp.where(under < 0.5, ndtri(jnp.minimum(under, 0.5)), -ndtri(jnp.minimum(over, 0.5)))
        )
        return jnp.clip(x, low, high)

    return push


@latent_map.register
def _(distribution: LeftTruncatedDistribution) -> Map:
    return _truncated(distribution.base_dist, distribution.low, None)


@latent_map.register
def _(distribution: RightTruncatedDistribution) -> Map:
    return _truncated(distribution.base_dist, None, distribution.high)


@latent_map.register
def _(distribution: TwoSidedTruncatedDistribution) -> Map:
    return _truncated(distribution.base_dist, distribution.low, distribution.high)
