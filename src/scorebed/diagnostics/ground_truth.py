"""Which ground truth a score is compared with: the one that was asked for, or the cheapest that can
be trusted.

Whether one can be trusted is found on a few histories of every policy concerned:

    noise     ‖μ¹ − μ²‖ / (√2 ‖½(μ¹ + μ²)‖) of two independent truths, by history
    ess       the effective number of weighted draws, by history
    missed    how often the parameters that made a history, a draw of its posterior, outweigh all
              weighted draws together: the share of the posterior that these do not reach

Particles that settle in different modes, draws of which one has all the weight, and too few of
either show as noise; modes that two truths miss alike show only in `missed`."""

import logging
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from scorebed.bounds.importance import latent_experiment
from scorebed.diagnostics.groups import true_scores
from scorebed.inference.importance import importance_moments
from scorebed.inference.modes import finds_modes
from scorebed.keys import named
from scorebed.nle import Ledger
from scorebed.policies.base import Policy
from scorebed.registry import Registry
from scorebed.rollout import simulate
from scorebed.scores.reference import (
    DRAWS,
    INNER,
    PARTICLES,
    ImportanceTruth,
    LaplaceTruth,
    SMCTruth,
    Truth,
    exact_truth,
)
from scorebed.scores.reweighted import ProposalQuality
from scorebed.tasks.base import Task

PILOT = "truth-quality"  # the ledger's entry
HISTORIES = 64  # of each policy on which a truth is judged
WORSE = 0.9  # the quantile of noise, and one minus that of effective draws
FEW_DRAWS = 100.0
NOISY = 0.5
MISSED = 0.1

log = logging.getLogger("scorebed.diagnose")


class Quality(NamedTuple):
    """How far a ground truth can be trusted, on its worse histories: relative noise, effective
    draws (NaN where nothing is weighted), and the share of histories that its draws miss.
    """

    noise: float = 0.0
    ess: float = math.nan
    missed: float = 0.0

    @property
    def doubt(self) -> str:
        """Why it cannot be trusted, in words; empty if it can."""
        if math.isinf(self.noise) and self.ess < FEW_DRAWS:
            return f"it has only {self.ess:.0f} effective draws on its worse histories"
        if not self.noise <= NOISY:
            return f"two runs of it differ by {self.noise:.0%} on its worse histories"
        if self.missed > MISSED:
            return f"its draws miss {self.missed:.0%} of the posterior"
        return ""


TRUSTED = Quality()  # of a closed form


class GroundTruth(NamedTuple):
    """The truth, its name, its quality, and its size in draws or particles."""

    truth: Truth
    name: str
    quality: Quality = TRUSTED
    inner: int | None = None
    particles: int | None = None
    draws: int | None = None


# The fields that hold a size, in words.
SIZES = dict(
    zip(
        GroundTruth._fields[-3:],
        ("draws of the prior", "SMC particles", "draws around the modes"),
        strict=True,
    )
)


class Sizes(NamedTuple):
    """Draws of the prior for importance sampling, particles of tempered SMC, and draws around the
    posterior's modes.
    """

    inner: int = INNER
    particles: int = PARTICLES
    draws: int = DRAWS


# (task, policies, sizes, ledger, *, key) → GroundTruth, with its cost on the ledger.
FindTruth: TypeAlias = Callable[..., GroundTruth]


def cheapest_truth(
    task: Task, policies: Sequence[Policy], sizes: Sizes, ledger: Ledger, *, key: PRNGKeyArray
) -> GroundTruth:
    """The closed form if there is one; weighted draws around the modes where these can be found
    and tell nearly all; else importance sampling where draws of the prior are enough; else tempered
    SMC.
    """
    if (exact := exact_truth(task)) is not None:
        return GroundTruth(exact, "exact")
    if finds_modes(task) and task.can_order_blocks:
        found = laplace_truth(task, policies, sizes, ledger, key=key)
        if not found.quality.doubt:
            return found
        log.info("Draws around the posterior's modes: %s.", found.quality.doubt)
    found = importance_truth(task, policies, sizes, ledger, key=key)
    if found.quality.ess >= FEW_DRAWS and not found.quality.doubt:
        return found
    log.info(
        "%s draws of the prior are %.0f effective ones or fewer on a tenth of the histories: the "
        "ground truth is tempered SMC with %s particles.",
        f"{sizes.inner:,}",
        found.quality.ess,
        f"{sizes.particles:,}",
    )
    return smc_truth(task, policies, sizes, ledger, key=key)


def importance_truth(
    task: Task, policies: Sequence[Policy], sizes: Sizes, ledger: Ledger, *, key: PRNGKeyArray
) -> GroundTruth:
    """Importance sampling from the prior."""
    truth = ImportanceTruth(task, sizes.inner)
    ess = [
        effective_draws(task, policy, inner=sizes.inner, key=named(key, "ess", i))
        for i, policy in enumerate(policies)
    ]
    ledger.charge(PILOT, sum(map(len, ess)) * sizes.inner * task.horizon)
    few = min(float(np.quantile(each, 1 - WORSE)) for each in ess)
    # Where the weights tell already, two truths need not be paid for.
    noise = math.inf if few < FEW_DRAWS else _noise(task, truth, policies, ledger, key=key)
    return GroundTruth(truth, "importance", Quality(noise, few), inner=sizes.inner)


def smc_truth(
    task: Task, policies: Sequence[Policy], sizes: Sizes, ledger: Ledger, *, key: PRNGKeyArray
) -> GroundTruth:
    """Tempered SMC."""
    truth = SMCTruth(task, sizes.particles)
    noise = _noise(task, truth, policies, ledger, key=key)
    return GroundTruth(truth, "smc", Quality(noise), particles=sizes.particles)


def laplace_truth(
    task: Task, policies: Sequence[Policy], sizes: Sizes, ledger: Ledger, *, key: PRNGKeyArray
) -> GroundTruth:
    """Weighted draws of the Gaussians at the posterior's modes."""
    truth = LaplaceTruth(task, sizes.draws)
    each = [
        _proposal_quality(task, truth, policy, named(key, "quality", i))
        for i, policy in enumerate(policies)
    ]
    one = truth(key).nle + task.horizon
    ledger.charge(PILOT, sum(HISTORIES * (one + policy.design_nle) for policy in policies))
    quality = Quality(
        _noise(task, truth, policies, ledger, key=key),
        min(float(np.quantile(found.ess, 1 - WORSE)) for found in each),
        max(float(np.mean(found.missed)) for found in each),
    )
    return GroundTruth(truth, "laplace-mixture", quality, draws=sizes.draws)


TRUTHS: Registry[FindTruth] = Registry(
    "ground truth",
    {
        "auto": cheapest_truth,
        "importance": importance_truth,
        "laplace-mixture": laplace_truth,
        "smc": smc_truth,
    },
    made_by="a function",
)


def effective_draws(
    task: Task, policy: Policy, *, inner: int = INNER, outer: int = 32, key: PRNGKeyArray
) -> Float[np.ndarray, " N"]:
    """Effective sample sizes of `ImportanceScore` on a policy's trajectories. outer·inner·T NLE.

    Below some tens the ground truth is the conditional score of a few draws, and nothing measured
    against it can be believed."""
    return np.asarray(_effective_draws(task, policy, inner, outer, key))


@eqx.filter_jit
def _effective_draws(
    task: Task, policy: Policy, inner: int, outer: int, key: PRNGKeyArray
) -> Float[Array, " N"]:
    runs = jax.vmap(lambda k: simulate(task, policy, key=k))(jr.split(named(key, "outer"), outer))
    key_inner = named(key, "inner")
    return jax.vmap(lambda y, xi: importance_moments(task, y, xi, inner=inner, key=key_inner).ess)(
        runs.ys, runs.xis
    )


def _noise(
    task: Task, truth: Truth, policies: Sequence[Policy], ledger: Ledger, *, key: PRNGKeyArray
) -> float:
    """The relative noise of one truth on the worse tenth of the histories of the worse policy."""
    worst = 0.0
    for i, policy in enumerate(policies):
        _, ys, xis = _histories(task, policy, named(key, "histories", i))
        both = [true_scores(truth, ys, xis, named(key, "noise", i, run)) for run in range(2)]
        for a, b in zip(*(found.value for found in both), strict=True):
            worst = max(worst, float(np.quantile(relative_noise(a, b), WORSE)))
        passes = sum(int(found.passes) for found in both)
        ledger.charge(PILOT, passes * truth(key).pass_nle + HISTORIES * policy.design_nle)
    return worst


def relative_noise(
    first: Float[Array, "N T d"], second: Float[Array, "N T d"]
) -> Float[np.ndarray, " N"]:
    """‖μ¹ − μ²‖ / (√2 ‖½(μ¹ + μ²)‖) of each history; infinite where either is not finite."""
    a, b = (np.asarray(x, np.float64).reshape(len(x), -1) for x in (first, second))
    with np.errstate(invalid="ignore", divide="ignore"):
        found = np.linalg.norm(a - b, axis=1) / (math.sqrt(0.5) * np.linalg.norm(a + b, axis=1))
    equal = (a == b).all(1)
    return np.where(equal, 0.0, np.where(np.isfinite(found), found, np.inf))


@eqx.filter_jit
def _histories(task: Task, policy: Policy, key: PRNGKeyArray) -> tuple[Array, Array, Array]:
    return jax.vmap(lambda k: latent_experiment(task, policy, key=k))(jr.split(key, HISTORIES))


def _proposal_quality(
    task: Task, truth: LaplaceTruth, policy: Policy, key: PRNGKeyArray
) -> ProposalQuality:
    return _weigh(truth, *_histories(task, policy, named(key, "histories")), key)


@eqx.filter_jit
def _weigh(
    truth: LaplaceTruth, zs: Array, ys: Array, xis: Array, key: PRNGKeyArray
) -> ProposalQuality:
    return jax.vmap(truth(key).quality)(zs, ys, xis)
