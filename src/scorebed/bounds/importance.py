"""Bounds of the expected information gain by importance sampling, with another proposal for each
trajectory.

For a history (y, ξ) of parameters θ_0 = f(z_0), with the prior N(z; 0, I) of the latent z and any
normalised density q(z) that was made from (y, ξ) alone, draw z_1 … z_M ~ q and let

    w_m = N(z_m; 0, I) p(y | f(z_m), ξ) / q(z_m)
    lower  log p(y|θ_0,ξ) / [1/(M+1) Σ_{m=0..M} w_m]
    upper  log p(y|θ_0,ξ) / [1/M     Σ_{m=1..M} w_m]

**Upper.** Given the history, the mean of w_1 … w_M is an unbiased estimate of the marginal
likelihood p(y|ξ); by Jensen the expectation of its logarithm is at most log p(y|ξ).

**Lower.** Given the history, z_0 is a draw of the posterior. Let ẑ be the mean of w_0 … w_M, with
the place of z_0 among the M + 1 drawn at random. The law of all of them is ẑ/p(y|ξ) times that of
M + 1 draws of q, so E[1/ẑ] = 1/p(y|ξ) (at most, should q not cover all of the posterior) and
E[log ẑ] ≥ log p(y|ξ).

Both need that, given the history, q is independent of z_0: a proposal that looks at z_0 breaks the
second. Neither needs q to be good: a poor one makes the bounds wide, not wrong. Their distance is
about var(w / p(y|ξ)) / M. With q the exact posterior every w_m is p(y|ξ), and both are the
information log p(y|θ_0,ξ)/p(y|ξ) of the trajectory, for any M.

The largest value that a trajectory's lower bound can take is log(M+1) + log q(z_0)/N(z_0; 0, I),
that of z_0 being alone in the sum. `Bounds.ceiling` is its mean, log(M+1) above the bound of Barber
and Agakov for q; `Bounds.saturated` is the share of trajectories for which w_0 is more than half of
the sum.

The posterior of K exchangeable blocks, such as sources, has K! copies of every peak, and so has q:
it is the mean over all orders of a density of up to four ordered blocks
(`inference/gaussian_mixture.py`). Prior and weights then need no factor K!, and no draw falls where
its weight is zero. More blocks are for `bounds/smc.py`.

Everything happens in z: outcomes depend on z through θ alone, so the information about z is that
about θ even where f has no inverse (the depth floor of gravimetry, a random sign)."""

import math
from collections.abc import Callable, Sequence
from typing import ClassVar, NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.tree_util import Partial
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from scorebed.bounds.base import (
    Bound,
    Bounds,
    OnGroup,
    require_density,
    require_sizes,
    silent,
    size,
)
from scorebed.bounds.grouped import Grouped, GroupValues, bounds_by_groups
from scorebed.bounds.groups import GroupSums
from scorebed.errors import require
from scorebed.estimators.log_ratios import lower_log_ratio, upper_log_ratio
from scorebed.inference.blocks import exchangeable_blocks
from scorebed.inference.fitted import fitted_posterior
from scorebed.inference.gaussian_mixture import Proposal, standard_normal_log_prob
from scorebed.inference.importance import stream_log_sum
from scorebed.inference.laplace import laplace_histories, laplace_posterior
from scorebed.inference.modes import MANY, finds_modes, gaussian_task, has_modes
from scorebed.keys import named
from scorebed.policies.base import Policy
from scorebed.rollout import draw_noise, log_likelihood, log_likelihoods, rollout
from scorebed.tasks.base import LARGEST_ORDERED, Task
from scorebed.tasks.nuisance import refuse_nuisance

OUTER = 256
INNER = 4096
CHUNK = 256
GROUP = 16  # trajectories at once


class TrajectoryBounds(NamedTuple):
    """The bounds of one trajectory, or of several with an axis in front.

    `ceiling` is the largest value that the lower one could take, `saturated` whether z_0 is more
    than half of the sum, and `histories` counts likelihoods of the whole history: one is T NLE."""

    lower: Float[Array, "*N"]
    upper: Float[Array, "*N"]
    ceiling: Float[Array, "*N"]
    saturated: Bool[Array, "*N"]
    histories: Int[Array, "*N"]


# (task, ys, xis, *, key) → Proposal. It is never given the parameters that made the history.
Propose: TypeAlias = Callable[..., Proposal]


def importance_bounds(
    task: Task,
    policy: Policy,
    *,
    outer: int = OUTER,
    inner: int = INNER,
    propose: Propose | None = None,
    on_group: OnGroup = silent,
    key: PRNGKeyArray,
) -> Bounds:
    """Bounds by importance sampling, with a proposal fitted to the posterior of each trajectory.

    outer · (inner + 1) · T NLE, and what the proposals take. Trajectories share no draws, so the
    standard errors are those of independent samples; the n-th trajectory depends on `key` and n
    alone.

    Arguments:
        task: the experiment, with a density, no nuisance parameters and at most four exchangeable
            blocks.
        policy: the policy whose designs are judged.
        outer: number of trajectories, N.
        inner: draws of the proposal of each trajectory, M.
        propose: makes the proposal of a history, `propose(task, ys, xis, *, key)`;
            `usual_proposal` if left out.
        on_group: called with the number of groups done and of all groups.
        key: the random key.

    Returns:
        `Bounds` in nats.

    Raises:
        NoDensityError: if the task has no density.
        InvalidValueError: if the task is not for importance bounds, `outer` is below 2 or `inner`
            below 1.

    Example:
        >>> two = sb.make_task("location-finding", sources=2, horizon=2)
        >>> designs = sb.make_policy("static", two, key=jr.key(0))
        >>> found = sb.importance_bounds(two, designs, outer=4, inner=64, key=jr.key(1))
        >>> found.outer, found.inner
        (4, 64)
    """
    groups = importance_groups(task, outer, inner, propose or usual_proposal)
    return bounds_by_groups(groups, policy, on_group=on_group, key=key)


def importance_groups(task: Task, outer: int, inner: int, propose: Propose) -> "TrajectoryGroups":
    """The same as groups."""
    require_sizes(outer, inner, least_inner=1, usual=(OUTER, INNER))
    require_orders(task)
    of_one = Partial(trajectory_bounds, task, propose=propose, inner=inner)
    return TrajectoryGroups(task, of_one, outer, inner, GROUP)


def require_orders(task: Task) -> None:
    """Refuse a task that importance bounds are not for: without a density, with nuisance
    parameters, or with too many exchangeable blocks.
    """
    require_density(task, "importance bounds")
    refuse_nuisance(task, "importance bounds", "use contrastive bounds.")
    require(
        task.can_order_blocks,
        "the exchangeable blocks of a task for importance bounds",
        got=exchangeable_blocks(task),
        expected=f"at most {LARGEST_ORDERED}",
        fix="use bounds by SMC: smc_bounds, or --bound smc.",
    )


class Importance(Bound):
    """Importance sampling from a density fitted to the posterior of each trajectory: tight for
    tasks with up to four exchangeable blocks.
    """

    name: ClassVar[str] = "importance"

    outer: int = eqx.field(static=True, default=OUTER)
    """Number of trajectories, N."""
    inner: int = eqx.field(static=True, default=INNER)
    """Number of draws of each trajectory's proposal, M."""

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
        n, m = size(outer, self.outer), size(inner, self.inner)
        return importance_bounds(task, policy, outer=n, inner=m, on_group=on_group, key=key)

    def grouped(
        self, task: Task, *, outer: int | None = None, inner: int | None = None
    ) -> "TrajectoryGroups":
        n, m = size(outer, self.outer), size(inner, self.inner)
        return importance_groups(task, n, m, usual_proposal)

    def supports(self, task: Task) -> None:
        require_orders(task)

    @property
    def monitor(self) -> "LaplaceImportance":
        return LaplaceImportance()


class LaplaceImportance(Bound):
    """Importance sampling from Gaussians at the posterior's modes, an order of magnitude cheaper
    than a fitted density: training is followed by it. For Gaussian outcomes.
    """

    name: ClassVar[str] = "importance-laplace"

    outer: int = eqx.field(static=True, default=OUTER)
    """Number of trajectories, N."""
    inner: int = eqx.field(static=True, default=INNER)
    """Number of draws of each trajectory's proposal, M."""

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
        return importance_bounds(
            task,
            policy,
            outer=size(outer, self.outer),
            inner=size(inner, self.inner),
            propose=laplace_posterior,
            on_group=on_group,
            key=key,
        )

    def grouped(
        self, task: Task, *, outer: int | None = None, inner: int | None = None
    ) -> "TrajectoryGroups":
        n, m = size(outer, self.outer), size(inner, self.inner)
        return importance_groups(task, n, m, laplace_posterior)

    def supports(self, task: Task) -> None:
        require_orders(task)
        gaussian_task(task, "a Laplace proposal")

    def nle(self, task: Task, outer: int, inner: int) -> int:
        return outer * (inner + 1 + laplace_histories(task)) * task.horizon


class TrajectoryGroups(Grouped):
    """Bounds that `of_one(z, ys, xis, key=…)` gives for each trajectory, `size` of them at once."""

    task: Task
    of_one: Partial
    outer: int = eqx.field(static=True)
    inner: int = eqx.field(static=True)
    size: int = eqx.field(static=True)

    @property
    def groups(self) -> int:
        return -(-self.outer // min(self.size, self.outer))

    def values(self, policy: Policy, group: int, *, key: PRNGKeyArray) -> GroupValues:
        # The last group is filled up with further trajectories, which are then dropped: one program
        # serves all.
        count = min(self.size, self.outer)
        indices = jnp.arange(group * count, (group + 1) * count)
        found = _group_bounds(self.task, policy, self.of_one, indices, key)
        return {name: np.asarray(values) for name, values in found._asdict().items()}

    def bounds(self, policy: Policy, found: Sequence[GroupValues]) -> Bounds:
        each = {
            name: np.concatenate([values[name] for values in found])[: self.outer]
            for name in TrajectoryBounds._fields
        }
        lower, lower_se = _mean(each["lower"])
        upper, upper_se = _mean(each["upper"])
        ceiling, saturated = _mean(each["ceiling"])[0], float(each["saturated"].mean())
        nle = int(each["histories"].astype(np.int64).sum()) * self.task.horizon
        nle += self.outer * policy.design_nle
        # Trajectories share no draws: each is a group of its own.
        sums = GroupSums.of(*(np.split(each[side], self.outer) for side in ("lower", "upper")))
        sizes = (self.outer, self.inner)
        return Bounds(lower, lower_se, upper, upper_se, *sizes, ceiling, saturated, nle, sums)


def usual_proposal(
    task: Task, ys: Float[Array, "T dy"], xis: Float[Array, "T dx"], *, key: PRNGKeyArray
) -> Proposal:
    """Gaussians at the modes where these can be found and posteriors are narrow, or parameters
    many; else a density fitted to particles, which start from the prior and would miss a far
    narrower posterior, and fill no space of tens of dimensions.
    """
    # Of many exchangeable blocks no start finds all modes.
    many = task.prior.dim > MANY and not task.narrow_posterior
    if (task.narrow_posterior and finds_modes(task)) or (many and has_modes(task)):
        return laplace_posterior(task, ys, xis)
    return fitted_posterior(task, ys, xis, key=key)


def trajectory_bounds(
    task: Task,
    z: Float[Array, " k"],
    ys: Float[Array, "T dy"],
    xis: Float[Array, "T dx"],
    *,
    propose: Propose,
    inner: int,
    key: PRNGKeyArray,
) -> TrajectoryBounds:
    """Bounds of a history that the latent z made. inner + 1 evaluations of it, and those of the
    proposal.
    """
    key_proposal, key_inner = jr.split(key)
    density, histories = propose(task, ys, xis, key=key_proposal)

    def log_weights(indices: Int[Array, " M"]) -> Float[Array, " M"]:
        zs = jax.vmap(lambda m: density.sample(key=jr.fold_in(key_inner, m)))(indices)
        likelihoods = log_likelihoods(task, jax.vmap(task.prior.from_latent)(zs), ys, xis)
        return jax.vmap(standard_normal_log_prob)(zs) - jax.vmap(density.log_prob)(zs) + likelihoods

    log_total = stream_log_sum(log_weights, inner, CHUNK, ys.dtype)
    log_p0 = log_likelihood(task, task.prior.from_latent(z), ys, xis)
    gain = density.log_prob(z) - standard_normal_log_prob(z)
    return TrajectoryBounds(
        lower_log_ratio(log_p0, log_p0 - gain, log_total, inner),
        upper_log_ratio(log_p0, log_total, inner),
        gain + math.log(inner + 1),
        log_p0 - gain > log_total,
        histories + inner + 1,
    )


@eqx.filter_jit
def _group_bounds(
    task: Task, policy: Policy, of_one: Partial, indices: Int[Array, " N"], key: PRNGKeyArray
) -> TrajectoryBounds:
    """Everything about some trajectories, by their numbers."""

    def one(index: Int[Array, ""]) -> TrajectoryBounds:
        base = jr.fold_in(key, index)
        z, ys, xis = latent_experiment(task, policy, key=named(base, "run"))
        found: TrajectoryBounds = of_one(z, ys, xis, key=named(base, "bounds"))
        return found

    return jax.vmap(one)(indices)


def latent_experiment(
    task: Task, policy: Policy, *, key: PRNGKeyArray
) -> tuple[Float[Array, " k"], Float[Array, "T dy"], Float[Array, "T dx"]]:
    """The experiment that `simulate` makes of this key, and the latent z of its parameters."""
    z = jr.normal(named(key, "theta"), (task.prior.dim,))
    noise = draw_noise(task, policy, key=named(key, "noise"))
    run = rollout(task, policy, task.prior.from_latent(z), noise)
    return z, run.ys, run.xis


def _mean(values: np.ndarray) -> tuple[float, float]:
    """Mean of independent values and its standard error."""
    mean = float(values.mean(dtype=np.float64))
    if not math.isfinite(mean):
        return mean, math.nan
    return mean, float(values.std(ddof=1, dtype=np.float64) / math.sqrt(len(values)))
