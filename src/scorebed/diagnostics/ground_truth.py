"""Which ground truth a score is compared with: the one that was asked for, or the cheapest that can
be trusted.
"""

import logging
import math
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np
from jaxtyping import PRNGKeyArray

from scorebed.diagnostics.gradient_error import effective_draws
from scorebed.diagnostics.verdict import FEW_DRAWS
from scorebed.nle import Ledger
from scorebed.policies.base import Policy
from scorebed.registry import Registry
from scorebed.scores.reference import ImportanceTruth, SMCTruth, Truth, exact_truth
from scorebed.tasks.base import Task

EFFECTIVE_DRAWS = "effective-draws"  # the ledger's entry


class GroundTruth(NamedTuple):
    """The truth, its name, its size in draws or particles, and its effective draws on the worse
    histories: infinite where they do not matter.
    """

    truth: Truth
    name: str
    ess: float
    inner: int | None = None
    particles: int | None = None


# The fields that hold a size, in words.
SIZES = dict(zip(GroundTruth._fields[-2:], ("draws of the prior", "SMC particles"), strict=True))

# (task, policy, inner, particles, ledger, *, key) → GroundTruth, with its cost on the ledger.
FindTruth: TypeAlias = Callable[..., GroundTruth]


def cheapest_truth(
    task: Task, policy: Policy, inner: int, particles: int, ledger: Ledger, *, key: PRNGKeyArray
) -> GroundTruth:
    """The closed form if there is one, importance sampling where `inner` draws of the prior are
    enough, tempered SMC elsewhere.
    """
    if (exact := exact_truth(task)) is not None:
        return GroundTruth(exact, "exact", math.inf)
    ess = _effective_draws(task, policy, inner, ledger, key=key)
    if ess >= FEW_DRAWS:
        return GroundTruth(ImportanceTruth(task, inner), "importance", ess, inner=inner)
    logging.getLogger("scorebed.diagnose").info(
        "%s: the ground truth is tempered SMC with %s particles.",
        _few(inner, ess),
        f"{particles:,}",
    )
    return smc_truth(task, policy, inner, particles, ledger, key=key)


def importance_truth(
    task: Task, policy: Policy, inner: int, particles: int, ledger: Ledger, *, key: PRNGKeyArray
) -> GroundTruth:
    """Importance sampling, with a warning if its draws are too few."""
    del particles
    ess = _effective_draws(task, policy, inner, ledger, key=key)
    if ess < FEW_DRAWS:
        logging.getLogger("scorebed.diagnose").warning(
            "%s: use --truth smc, or more --inner.", _few(inner, ess)
        )
    return GroundTruth(ImportanceTruth(task, inner), "importance", ess, inner=inner)


def smc_truth(
    task: Task, policy: Policy, inner: int, particles: int, ledger: Ledger, *, key: PRNGKeyArray
) -> GroundTruth:
    """Tempered SMC."""
    del policy, inner, ledger, key
    return GroundTruth(SMCTruth(task, particles), "smc", math.inf, particles=particles)


TRUTHS: Registry[FindTruth] = Registry(
    "ground truth",
    {"auto": cheapest_truth, "importance": importance_truth, "smc": smc_truth},
    made_by="a function",
)


def _effective_draws(
    task: Task, policy: Policy, inner: int, ledger: Ledger, *, key: PRNGKeyArray
) -> float:
    """Of `inner` draws of the prior, how many count on the worse tenth of the histories."""
    sizes = effective_draws(task, policy, inner=inner, key=key)
    ledger.charge(EFFECTIVE_DRAWS, len(sizes) * inner * task.horizon)
    return float(np.quantile(sizes, 0.1))


def _few(inner: int, ess: float) -> str:
    return (
        f"{inner:,} draws of the prior are {ess:.0f} effective ones or fewer on a tenth of the "
        "histories"
    )
