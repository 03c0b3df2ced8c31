"""Sentences about the paper's claims, on numbers whose answer is known."""

import math

import pytest

from scorebed.paper.claims import (
    MeasuredBias,
    correlates,
    faster,
    leads_over_budgets,
    lower_bias,
    plateaus,
    spearman,
    spread,
    stable,
    worse_conditioned,
)
from scorebed.paper.statistics import Sample

LOW, HIGH = Sample(5.0, 0.01, 4), Sample(6.0, 0.01, 4)
SMALL, LARGE = MeasuredBias("small", 0.01, 0.001, 1.0), MeasuredBias("large", 1.0, 0.05, 2.0)
UNKNOWN = MeasuredBias("unknown", 0.01, 0.02, 1.0)


def test_spearman_is_of_ranks_and_leaves_out_what_is_not_known():
    x = [1.0, 2.0, 3.0, 4.0, 5.0, math.nan]
    assert spearman(x, [math.exp(each) for each in x])[::2] == (pytest.approx(1.0), 5)
    assert spearman(x, [-each for each in x])[0] == pytest.approx(-1.0)
    assert math.isnan(spearman([1, 2, 3], [1, 2, 3])[0]), "three points say nothing"
    assert math.isnan(spearman([1, 1, 1, 1], [1, 2, 3, 4])[0])


def test_a_method_leads_only_if_it_is_above_all_at_every_budget():
    both = {2: {"a": HIGH, "b": LOW}, 1: {"a": Sample(7.0, 0.01, 4), "b": LOW}}
    leads, rises = leads_over_budgets("a", both)
    assert leads.holds is True
    assert "2 of 2 budgets, at 2 by more than errors" in leads.because
    assert rises.holds is True
    assert "+1.00 nats" in rises.because
    trails, _ = leads_over_budgets("b", both)
    assert trails.holds is False
    assert "a is above it at 1/2; a is above it at the whole" in trails.because


def test_nothing_is_decided_without_rivals_or_beyond_errors():
    assert leads_over_budgets("a", {1: {"a": HIGH}})[0].holds is None
    noisy = Sample(6.1, 1.0, 4)
    _, rises = leads_over_budgets("a", {2: {"a": HIGH, "b": LOW}, 1: {"a": noisy, "b": LOW}})
    assert rises.holds is None


@pytest.mark.parametrize(
    ("y", "holds"),
    [
        ([1.0, 3.0, 4.0], True),  # there after 2, the other after 3
        ([1.0, 1.5, 3.0], False),  # there no sooner
        ([0.5, 0.6, 0.7], False),  # never there, and the other had its best at once
    ],
)
def test_a_curve_is_faster_if_it_is_there_sooner(y, holds):
    claim = faster(("a", [1, 2, 3], y), ("b", [1, 2, 3], [1.0, 2.0, 3.0]), unit="step")
    assert claim.holds is holds


def test_a_curve_that_is_cheap_and_stops_short_is_not_decided():
    claim = faster(("a", [1, 2], [1.0, 2.0]), ("b", [100, 200], [2.5, 3.0]), unit="evaluation")
    assert claim.holds is None
    assert "Its best is 2.00 nats, after 2; b is there after 100" in claim.because


def test_biases_are_compared_beyond_their_errors():
    (claim,) = lower_bias(SMALL, [LARGE], claimed_for_score=True)
    assert claim.holds is True
    (claim,) = lower_bias(LARGE, [SMALL], claimed_for_score=True)
    assert claim.holds is False
    (claim,) = lower_bias(LARGE, [SMALL], claimed_for_score=False)
    assert claim.holds is True
    (claim,) = lower_bias(UNKNOWN, [SMALL], claimed_for_score=True)
    assert claim.holds is None


def test_a_plateau_is_where_variance_over_n_is_the_squared_bias():
    """V/‖B‖² is 100 for one and 2 for the other."""
    assert plateaus([SMALL, LARGE], 1024).holds is True
    assert plateaus([SMALL, LARGE], 1).holds is False
    assert plateaus([SMALL, LARGE], 10).holds is None
    assert plateaus([UNKNOWN], 10).holds is None
    assert "small: 1e+02; large: 2" in plateaus([SMALL, LARGE], 1024).because


def test_a_correlation_holds_by_its_sign_and_its_p():
    x = list(range(10))
    up, down = [2.0 * each for each in x], [-2.0 * each for each in x]
    assert correlates("", x, up, sign=1).holds is True
    assert correlates("", x, down, sign=1).holds is False
    assert correlates("", x, [0, 1, 0, 1, 0, 1, 0, 1, 0, 1], sign=1).holds is None
    assert "ρ = +1.00 over 10 points" in correlates("", x, up, sign=1, of="all").because


def test_seeds_lie_apart_by_their_largest_distance():
    seeds = [{16: 1.0, 4: 3.0, 1: 5.0}, {16: 4.0, 4: 3.5, 1: 5.1}]
    assert spread(seeds, early=True) == 3.0
    assert spread(seeds, early=False) == pytest.approx(0.1)
    assert math.isnan(spread(seeds[:1], early=True))
    (sentence,) = stable("here", seeds)
    assert "2 seeds" in sentence
    assert "3.00 nats at 1/16, 0.50 nats at 1/4, 0.10 nats at the whole" in sentence


def test_conditioning_is_worse_by_more_than_chance():
    calm, wild = [1.0 + 0.1 * n for n in range(20)], [100.0 + n for n in range(20)]
    assert worse_conditioned(wild, calm).holds is True
    assert worse_conditioned(calm, wild).holds is False
    assert worse_conditioned(calm, calm).holds is None


def test_a_claim_says_whether_it_holds():
    claim = correlates("It grows.", range(9), range(9), sign=1)
    assert str(claim).startswith("Holds here: It grows. Spearman's ρ")
