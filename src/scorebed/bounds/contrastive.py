"""Bounds of the expected information gain of a policy, by contrastive parameters from the prior
(paper, "Evaluation Bounds").

    sPCE  E log p(y|θ_0,ξ) / [1/(M+1) Σ_{m=0..M} p(y|θ_m,ξ)]  ≤  EIG
    sNMC  E log p(y|θ_0,ξ) / [1/M     Σ_{m=1..M} p(y|θ_m,ξ)]  ≥  EIG

Contrastive parameters are shared by the trajectories of a group and by no two groups; the standard
error is taken over groups, so that it is right in spite of the sharing. Memory is one chunk of
parameters by one group of trajectories, whatever N and M are.

Where only some parameters are of interest the first term is an average over the others
(`bounds/nuisance.py`)."""

import math
from collections.abc import Sequence
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from scorebed.bounds.base import SATURATED as SATURATED
from scorebed.bounds.base import Bound, OnGroup, require_density, require_sizes, silent, size
from scorebed.bounds.base import Bounds as Bounds
from scorebed.bounds.grouped import Grouped, GroupValues, bounds_by_groups
from scorebed.bounds.groups import GroupSums
from scorebed.bounds.nuisance import first_terms
from scorebed.estimators.log_ratios import lower_log_ratio, upper_log_ratio
from scorebed.inference.importance import NEGLIGIBLE
from scorebed.keys import named
from scorebed.policies.base import Policy
from scorebed.rollout import draw_noise, log_likelihood, log_likelihoods, rollout
from scorebed.tasks.base import Task
from scorebed.tasks.nuisance import check_interest, has_nuisance

CHUNK = 4096
GROUPS = 16  # at least: fewer would leave the standard error itself uncertain by more than a fifth
LARGEST_GROUP = 256
DROPPED_ONE_IN = 1000  # trajectories that may be lost to an overflow of the model
OUTER = 2048
INNER = 1_000_000


def eig_bounds(
    task: Task,
    policy: Policy,
    *,
    outer: int = OUTER,
    inner: int = INNER,
    on_group: OnGroup = silent,
    key: PRNGKeyArray,
) -> Bounds:
    """Bounds by contrastive draws of the prior: sPCE from below and sNMC from above.

    outer · (inner + 1) · T NLE; with nuisance parameters outer · (2 inner + 1) · T; and what the
    policy's own designs take. The lower bound is loose where the EIG comes near log(M+1): see
    `Bounds.saturated`, and use `tight_bounds`.

    Arguments:
        task: the experiment; it needs a density.
        policy: the policy whose designs are judged.
        outer: number of trajectories, N.
        inner: contrastive parameters of each trajectory, M.
        on_group: called with the number of groups done and of all groups.
        key: the random key.

    Returns:
        `Bounds` in nats. `saturated` is the share of trajectories whose θ_0 makes up more than half
        of the contrastive sum.

    Raises:
        InvalidValueError: if `outer` is below 2 or `inner` below 1.
        NoDensityError: if the task has no density.

    Example:
        >>> task = sb.make_task("linear-gaussian")
        >>> policy = sb.make_policy("static", task, key=jr.key(0))
        >>> found = sb.eig_bounds(task, policy, outer=32, inner=100, key=jr.key(1))
        >>> found.lower < found.upper
        True
    """
    require_sizes(outer, inner, least_inner=1, usual=(OUTER, INNER))
    check_interest(task, key=named(key, "interest"))
    groups = ContrastiveGroups(task, outer, inner)
    return bounds_by_groups(groups, policy, on_group=on_group, key=key)


class ContrastiveGroups(Grouped):
    """Groups of trajectories, each with contrastive parameters of its own."""

    task: Task
    outer: int = eqx.field(static=True)
    inner: int = eqx.field(static=True)

    @property
    def groups(self) -> int:
        return min(max(GROUPS, -(-self.outer // LARGEST_GROUP)), self.outer)

    def values(self, policy: Policy, group: int, *, key: PRNGKeyArray) -> GroupValues:
        count = self.outer // self.groups + (group < self.outer % self.groups)
        lower, upper = _group_bounds(self.task, policy, count, self.inner, named(key, group))
        return {"lower": np.asarray(lower), "upper": np.asarray(upper)}

    def bounds(self, policy: Policy, found: Sequence[GroupValues]) -> Bounds:
        lowers, uppers = (
            [np.asarray(each[side], np.float64) for each in found] for side in ("lower", "upper")
        )
        lowers, uppers = _without_overflows(lowers, uppers)
        ceiling = math.log(self.inner + 1)
        saturated = float(np.mean(np.concatenate(lowers) > ceiling - math.log(2)))
        sums = GroupSums.of(lowers, uppers)
        lower, lower_se = sums.mean_lower()
        upper, upper_se = sums.mean_upper()
        lower = min(lower, ceiling)  # rounding may have carried it past the ceiling
        nle = bounds_nle(self.task, self.outer, self.inner) + self.outer * policy.design_nle
        sizes = (self.outer, self.inner)
        return Bounds(lower, lower_se, upper, upper_se, *sizes, ceiling, saturated, nle, sums)


def _without_overflows(
    lowers: list[np.ndarray], uppers: list[np.ndarray]
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Without trajectories whose own likelihood is NaN, of which one in a thousand may be dropped;
    with more of them the bound is NaN.
    """
    bad = [np.isnan(lower) | np.isnan(upper) for lower, upper in zip(lowers, uppers, strict=True)]
    total, count = sum(map(len, bad)), sum(int(each.sum()) for each in bad)
    if not 0 < count <= max(1, total // DROPPED_ONE_IN) or any(each.all() for each in bad):
        return lowers, uppers
    return (
        [lower[~each] for lower, each in zip(lowers, bad, strict=True)],
        [upper[~each] for upper, each in zip(uppers, bad, strict=True)],
    )


class Contrastive(Bound):
    """sPCE and sNMC, for any task with a density; loose where the EIG comes near log(M+1)."""

    name: ClassVar[str] = "contrastive"

    outer: int = eqx.field(static=True, default=OUTER)
    """Number of trajectories, N."""
    inner: int = eqx.field(static=True, default=INNER)
    """Number of draws of the prior, M."""

    def __call__(
        self,
        task: Task,
        policy: Policy,
        *,
        outer: int | None = None,
        inner: int | None = None,
        on_group: OnGroup = silent,
        key: PRNGKeyArray,
    ) -> Bounds:
        self.supports(task)
        n, m = size(outer, self.outer), size(inner, self.inner)
        return eig_bounds(task, policy, outer=n, inner=m, on_group=on_group, key=key)

    def grouped(
        self, task: Task, *, outer: int | None = None, inner: int | None = None
    ) -> ContrastiveGroups:
        self.supports(task)
        n, m = size(outer, self.outer), size(inner, self.inner)
        require_sizes(n, m, least_inner=1, usual=(OUTER, INNER))
        return ContrastiveGroups(task, n, m)

    def supports(self, task: Task) -> None:
        require_density(task, "contrastive bounds")

    def nle(self, task: Task, outer: int, inner: int) -> int:
        return bounds_nle(task, outer, inner)


def bounds_nle(task: Task, outer: int, inner: int) -> int:
    """outer·(inner + 1)·T; with nuisance parameters `inner` more for every trajectory's first
    term. The policy's own likelihoods are not among them.
    """
    return outer * (inner * (2 if has_nuisance(task) else 1) + 1) * task.horizon


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
    log_p0 = jax.vmap(lambda run: log_likelihood(task, run.theta, run.ys, run.xis))(runs)
    total = contrastive_sum(task, runs.ys, runs.xis, inner, key=named(key, "inner"))
    lower = lower_log_ratio(log_p0, log_p0, total, inner)
    upper = upper_log_ratio(log_p0, total, inner)
    if has_nuisance(task):
        first = first_terms(task, z, log_p0, runs.ys, runs.xis, inner, key=named(key, "nuisance"))
        return lower + (first.lower - log_p0), upper + (first.upper - log_p0)
    return lower, upper


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
