"""Bounds of the expected information gain of a policy, by contrastive parameters from the prior
(paper, "Evaluation Bounds").

    sPCE  E log p(y|θ_0,ξ) / [1/(M+1) Σ_{m=0..M} p(y|θ_m,ξ)]  ≤  EIG  ≤  E log p(y|θ_0,ξ) / [1/M
    Σ_{m=1..M} p(y|θ_m,ξ)]  sNMC

Contrastive parameters are shared by the trajectories of a group and by no two groups; the standard
error is taken over groups, so that it is right in spite of the sharing. Memory is one chunk of
parameters by one group of trajectories, whatever N and M are.

Where only some parameters are of interest the first term is an average over the others
(`bounds/nuisance.py`)."""

import math
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from scorebed.bounds.nuisance import first_terms
from scorebed.errors import require
from scorebed.keys import named
from scorebed.policies.base import Policy
from scorebed.rollout import draw_noise, log_likelihood, log_likelihoods, rollout
from scorebed.tasks.base import Task
from scorebed.tasks.nuisance import check_interest, has_nuisance

CHUNK = 4096
GROUPS = 16  # at least: fewer would leave the standard error itself uncertain by more than a fifth
LARGEST_GROUP = 256
# exp of anything much below this is a slow denormal; clamping adds less than M · 10⁻³⁴ of its
# largest term to a sum.
NEGLIGIBLE = -80.0
SATURATED = 0.05  # share of the trajectories at the ceiling above which the lower bound is loose


class Bounds(eqx.Module):
    """A lower and an upper bound in nats, with standard errors over groups that share no
    contrastive draws.

    `ceiling` is the largest value that the lower bound can take with `inner` draws: log(M+1) if
    they are from the prior, and above it by what a better proposal knows (`bounds/importance.py`).
    Where the model has no density (`bounds/posterior.py`) there are no such draws, no ceiling and
    no upper bound, which is then NaN."""

    lower: float
    lower_se: float
    upper: float
    upper_se: float
    outer: int
    inner: int
    ceiling: float
    saturated: float
    nle: int

    def __str__(self) -> str:
        if math.isnan(self.upper) and self.inner == 0:
            return (
                f"{self.lower:.3f} ± {self.lower_se:.3f} ≤ EIG nats; there is no upper bound "
                f"without a density"
            )
        text = (
            f"{self.lower:.3f} ± {self.lower_se:.3f} ≤ EIG ≤ {self.upper:.3f} ± "
            f"{self.upper_se:.3f} nats"
        )
        if self.saturated > SATURATED:
            of_prior = self.ceiling == math.log(self.inner + 1)
            text += (
                f"; {self.saturated:.0%} of the trajectories are pressed against the ceiling "
                f"{'log(M+1) = ' if of_prior else 'of '}{self.ceiling:.2f}: use more inner samples"
                + (" or importance_bounds (smc_bounds of many sources)" if of_prior else "")
            )
        return text


def eig_bounds(
    task: Task,
    policy: Policy,
    *,
    outer: int = 2048,
    inner: int = 1_000_000,
    on_group: Callable[[int, int], None] = lambda *_: None,
    key: PRNGKeyArray,
) -> Bounds:
    """sPCE and sNMC with `outer` trajectories and `inner` contrastive parameters each. `bounds_nle`
    says what they cost.

    `saturated` is the share of trajectories whose own parameter makes up more than half of the
    contrastive sum: there the lower bound says little but log(M+1)."""
    require(
        outer >= 2 and inner >= 1,
        "the size of a bound",
        got=f"outer={outer}, inner={inner}",
        expected="at least two outer and one inner sample",
        fix="the paper uses 2048 and 1000000.",
    )
    groups = min(max(GROUPS, -(-outer // LARGEST_GROUP)), outer)
    check_interest(task, key=named(key, "interest"))
    ceiling = math.log(inner + 1)
    sizes = [outer // groups + (g < outer % groups) for g in range(groups)]
    lowers, uppers = [], []
    for g, size in enumerate(sizes):
        each = _group_bounds(task, policy, size, inner, named(key, g))
        lowers.append(np.asarray(each[0], np.float64))
        uppers.append(np.asarray(each[1], np.float64))
        on_group(g + 1, groups)
    saturated = float(np.mean(np.concatenate(lowers) > ceiling - math.log(2)))
    lower, lower_se = _mean_over_groups(lowers)
    upper, upper_se = _mean_over_groups(uppers)
    lower = min(lower, ceiling)  # rounding may have carried it past
    return Bounds(
        lower,
        lower_se,
        upper,
        upper_se,
        outer,
        inner,
        ceiling,
        saturated,
        bounds_nle(task, outer, inner),
    )


def bounds_nle(task: Task, outer: int, inner: int) -> int:
    """outer·(inner + 1)·T; with nuisance parameters `inner` more for every trajectory's first
    term.
    """
    return outer * (inner * (2 if has_nuisance(task) else 1) + 1) * task.horizon


def _mean_over_groups(groups: list[np.ndarray]) -> tuple[float, float]:
    """Mean over all samples, and its standard error from the spread of the groups' sums."""
    n = sum(len(group) for group in groups)
    mean = sum(group.sum() for group in groups) / n
    if not np.isfinite(mean):
        return float(mean), math.nan
    spread = sum((group.sum() - len(group) * mean) ** 2 for group in groups)
    return float(mean), float(np.sqrt(spread * len(groups) / (len(groups) - 1)) / n)


@eqx.filter_jit
def _group_bounds(
    task: Task, policy: Policy, size: int, inner: int, key: PRNGKeyArray
) -> tuple[Float[Array, " size"], Float[Array, " size"]]:
    """Both bounds of every trajectory of a group."""
    keys = jr.split(named(key, "outer"), size)
    z = jax.vmap(lambda k: jr.normal(named(k, "theta"), (task.prior.dim,)))(keys)
    runs = jax.vmap(
        lambda z, k: rollout(
            task, policy, task.prior.from_latent(z), draw_noise(task, policy, key=named(k, "noise"))
        )
    )(z, keys)
    own = jax.vmap(lambda run: log_likelihood(task, run.theta, run.ys, run.xis))(runs)
    total = contrastive_sum(task, runs.ys, runs.xis, inner, key=named(key, "inner"))
    lower, upper = _from_sums(own, total, inner)
    if has_nuisance(task):
        first = first_terms(task, z, own, runs.ys, runs.xis, inner, key=named(key, "nuisance"))
        return lower + (first.lower - own), upper + (first.upper - own)
    return lower, upper


def _from_sums(
    own: Float[Array, "*N"], total: Float[Array, "*N"], inner: int
) -> tuple[Float[Array, "*N"], Float[Array, "*N"]]:
    """sPCE and sNMC from log p(y|θ_0,ξ) and log Σ_m p(y|θ_m,ξ)."""
    return own - jnp.logaddexp(total, own) + math.log(inner + 1), own - total + math.log(inner)


def contrastive_sum(
    task: Task,
    ys: Float[Array, "N T dy"],
    xis: Float[Array, "N T dx"],
    inner: int,
    *,
    key: PRNGKeyArray,
) -> Float[Array, " N"]:
    """log Σ_m p(y|θ_m,ξ) over `inner` draws of the prior, shared by the N trajectories and streamed
    in chunks.
    """
    chunk = min(CHUNK, inner)
    count = -(-inner // chunk)
    lowest = jnp.finfo(ys.dtype).min

    def add(carry: tuple[Array, Array], index: Array) -> tuple[tuple[Array, Array], None]:
        """Σ_m p(y|θ_m,ξ) as e^top · total. A sum of logarithms would lose digits at every chunk."""
        top, total = carry
        keys = jr.split(jr.fold_in(key, index), chunk)
        thetas = jax.vmap(lambda k: task.prior.sample(key=k))(keys)
        each = jax.vmap(lambda y, xi: log_likelihoods(task, thetas, y, xi))(ys, xis)
        each = jnp.where(index * chunk + jnp.arange(chunk) < inner, each, -jnp.inf)
        new_top = jnp.maximum(top, each.max(1))
        part = jnp.exp(jnp.maximum(each - new_top[:, None], NEGLIGIBLE)).sum(1)
        return (new_top, total * jnp.exp(top - new_top) + part), None

    start = (jnp.full(len(ys), lowest, ys.dtype), jnp.zeros(len(ys), ys.dtype))
    top, total = jax.lax.scan(add, start, jnp.arange(count))[0]
    # Where every parameter is impossible the sum is zero, and the upper bound is infinite.
    return jnp.where(top == lowest, -jnp.inf, top + jnp.log(total))
