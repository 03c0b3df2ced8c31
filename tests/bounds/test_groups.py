"""Paired differences of two policies: on common draws, with errors of the differences."""

import dataclasses
import math

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from scorebed.bounds.contrastive import eig_bounds
from scorebed.bounds.groups import GroupSums, paired, pooled
from scorebed.errors import InvalidValueError
from scorebed.policies.static import Static
from scorebed.runs.evaluation import advantage, undecided
from scorebed.runs.record import BoundsRecord
from scorebed.tasks.oracles.linear_gaussian import LinearGaussian

TASK = LinearGaussian(horizon=1)
SIZES = {"outer": 512, "inner": 4000}


def bounds(xi: float, seed: int = 0):
    policy = Static.from_designs(jnp.full((1, 1), xi), TASK.designs)
    return eig_bounds(TASK, policy, **SIZES, key=jr.key(seed))


def test_a_policy_is_not_ahead_of_itself():
    """Exactly: equal keys give equal draws."""
    found = bounds(1.0).groups
    assert paired(found, found).difference == (0.0, 0.0)


def test_a_paired_difference_is_the_difference_of_the_eigs_and_surer_than_two_bounds():
    """False alarm: one in a million, and M = 4,000 leaves a bias of about 10⁻⁴. Unpaired draws, or
    an error that is that of the two bounds, would fail the last line.
    """
    one, other = bounds(1.1), bounds(1.0)
    truth = float(TASK.eig(jnp.full((1, 1), 1.1)) - TASK.eig(jnp.full((1, 1), 1.0)))
    found = paired(one.groups, other.groups)
    assert found.difference.mean == pytest.approx(one.lower - other.lower, abs=1e-9)
    assert abs(found.difference.mean - truth) < 4.892 * found.difference.se + 1e-3
    assert found.at_least.mean == pytest.approx(one.lower - other.upper, abs=1e-9)
    assert found.at_least.mean <= found.difference.mean
    assert 0 < found.difference.se < 0.2 * math.hypot(one.lower_se, other.lower_se)


def test_the_error_of_a_paired_difference_is_its_spread():
    """Over 40 pairs, whose spread is known to 11%; a false alarm is four of these."""
    rng = np.random.default_rng(0)
    common, apart = rng.normal(size=(40, 16, 8)), 0.1 * rng.normal(size=(40, 16, 8))
    pairs = [
        paired(GroupSums.of(list(c + a), list(c)), GroupSums.of(list(c), list(c))).difference
        for c, a in zip(common, apart, strict=True)
    ]
    spread = np.std([mean for mean, _ in pairs], ddof=1)
    assert np.mean([se for _, se in pairs]) == pytest.approx(spread, rel=0.45)


def test_pooled_groups_are_one_estimate():
    parts = [bounds(1.0, seed) for seed in (0, 1)]
    found = pooled([part.groups for part in parts])
    assert found.mean_lower().mean == pytest.approx(np.mean([part.lower for part in parts]))
    assert sum(found.sizes) == 1024
    assert found.mean_lower().se < min(part.lower_se for part in parts)


def test_bounds_of_other_sizes_are_not_compared():
    with pytest.raises(InvalidValueError, match="the same groups"):
        paired(GroupSums((2,), (1.0,), (1.0,)), GroupSums((1,), (1.0,), (1.0,)))


def test_groups_survive_json():
    sums = GroupSums((2, 1), (1.5, math.nan), (2.5, 0.25))
    values = sums.values() | {"lower": [1.5, None]}
    np.testing.assert_equal(GroupSums.read(values), sums)


def test_what_cannot_be_told_apart_is_said():
    record = BoundsRecord.of(bounds(1.0))
    values = dataclasses.asdict(record.compared(paired(bounds(1.1).groups, bounds(1.0).groups)))
    assert advantage(values).startswith("+0.0")
    close = {"advantage": 0.01, "advantage_se": 0.02}
    behind = {"advantage": -0.1, "advantage_se": 0.02}
    sentences = undecided({"references": {"static": close, "random": behind, "spaced": values}})
    assert sentences[0].startswith("Policy and static designs cannot be told apart: +0.010 ± 0.020")
    assert sentences[1].startswith("The policy is behind random designs, by 0.100 ± 0.020 nats")
    assert sentences[1].endswith("train longer, or use those designs.")
    assert len(sentences) == 2
    clear = {"advantage": 15.2, "advantage_se": 0.5}  # tight, where contrastive bounds saturate
    assert undecided({"references": {"static": close}, "paired": {"static": clear}}) == []
    (untrained,) = undecided({"references": {"random": behind}, "trained": False})
    assert untrained.endswith("name a --policy that is trained, or use those designs.")
