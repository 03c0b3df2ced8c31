"""The likelihood ledger: its laws, the inverse helpers, and the exact integers of the paper's
budgets.
"""

import dataclasses
import importlib.util
import itertools
import math
import subprocess
import sys
from fractions import Fraction

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import scorebed.nle
from scorebed.errors import BudgetExceededError, InvalidValueError
from scorebed.nle import (
    IOSMC2,
    MLMC,
    PCE,
    Cost,
    JointVarPost,
    Ledger,
    Pretrained,
    level_probabilities,
    level_weights,
)
from scorebed.presets.budgets import TABLES

laws = settings(deadline=None, derandomize=True)
sizes = st.integers(1, 10**6)
small = st.integers(1, 9)
budgets = st.integers(0, 10**30)


@pytest.fixture(scope="module")
def plain():
    """The module as users load it, without the tests' type checks, which would refuse wrong types
    before it can.
    """
    spec = importlib.util.spec_from_file_location("plain_nle", scorebed.nle.__file__)
    module = importlib.util.module_from_spec(spec)
    sys.modules["plain_nle"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["plain_nle"]


# --- the ledger ---


@laws
@given(
    st.one_of(st.none(), st.integers(0, 200)),
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 60))),
)
def test_charges_add_up_and_a_refused_charge_changes_nothing(budget, charges):
    ledger, accepted = Ledger(budget), []
    for entry, nle in charges:
        before = (ledger.spent, ledger.totals)
        fits = budget is None or ledger.spent + nle <= budget
        if fits:
            ledger.charge(entry, nle)
            accepted.append((entry, nle))
        else:
            with pytest.raises(BudgetExceededError):
                ledger.charge(entry, nle)
            assert (ledger.spent, ledger.totals) == before
        assert budget is None or ledger.spent <= budget
    assert ledger.spent == sum(nle for _, nle in accepted)
    for entry in "abc":
        assert ledger.totals.get(entry, 0) == sum(nle for name, nle in accepted if name == entry)
    assert ledger.budget == budget
    assert ledger.remaining == (None if budget is None else budget - ledger.spent)


def test_the_budget_can_be_spent_to_the_last_evaluation_and_no_further():
    ledger = Ledger(10**30)
    ledger.charge("score", 10**30 - 1)
    ledger.charge("policy", 1)
    ledger.charge("nothing", 0)
    with pytest.raises(BudgetExceededError):
        ledger.charge("policy", 1)
    assert ledger.totals == {"score": 10**30 - 1, "policy": 1, "nothing": 0}
    assert ledger.remaining == 0


def test_a_refusal_says_budget_spent_asked_and_what_fits():
    ledger = Ledger(10_000)
    ledger.charge("score", 7_000)
    with pytest.raises(BudgetExceededError) as refused:
        ledger.charge("policy", 4_500)
    message = str(refused.value)
    for part in (
        "'policy'",
        "got 4,500",
        "7,000",
        "10,000",
        "at most 3,000",
        "raise the budget by 1,500",
    ):
        assert part in message, part


def test_totals_are_a_copy():
    ledger = Ledger()
    ledger.charge("score", 5)
    ledger.totals["score"] = 0
    assert ledger.spent == 5


WRONG = [-1, True, False, 1.0, math.nan, math.inf, "1", None, np.int64(1), Fraction(1)]


@pytest.mark.parametrize("nle", WRONG, ids=repr)
def test_the_ledger_takes_plain_integers_only(plain, nle):
    ledger = plain.Ledger(10)
    with pytest.raises(InvalidValueError, match="whole number"):
        ledger.charge("score", nle)
    assert ledger.totals == {}
    if nle is not None:
        with pytest.raises(InvalidValueError, match="budget"):
            plain.Ledger(nle)


@pytest.mark.parametrize("entry", ["", None, 3])
def test_entries_have_names(plain, entry):
    with pytest.raises(InvalidValueError, match="name of a ledger entry"):
        plain.Ledger().charge(entry, 1)


# --- the costs ---


@pytest.mark.parametrize("value", [*WRONG, 0], ids=repr)
@pytest.mark.parametrize(
    "cost",
    [
        row.cost
        for name in ("location", "mlmc", "iosmc")
        for row in TABLES[name].rows
        if row.cost.P == 1
    ],
    ids=lambda cost: type(cost).__name__,
)
def test_sizes_are_plain_integers_from_one(plain, cost, value):
    kind, arguments = getattr(plain, type(cost).__name__), dataclasses.asdict(cost)
    for name in arguments.keys() - {"tau"}:
        if value == 0 and type(value) is int and name in ("R", "max_level"):
            kind(**arguments | {name: 0})
        else:
            with pytest.raises(InvalidValueError, match=rf"^{name} of {kind.__name__}"):
                kind(**arguments | {name: value})


@laws
@given(T=small, P=small, K_P=small, N=small, K_U=small, B_U=small, M=small)
def test_the_formulas_count_what_the_loops_evaluate(T, P, K_P, N, K_U, B_U, M):
    """Each formula against a count over its loops, one experiment of T evaluations at a time."""
    policies = sum(T for _ in range(P) for _ in range(K_P) for _ in range(N))
    upfront = sum(T for _ in range(K_U) for _ in range(B_U))
    assert Pretrained(T=T, P=P, K_P=K_P, N=N, K_U=K_U, B_U=B_U).nle == upfront + policies
    assert PCE(T=T, P=P, K_P=K_P, N=N, M=M).nle == policies + M * policies
    assert JointVarPost(T=T, P=P, K_J=K_U, B_J=B_U).nle == P * upfront
    assert MLMC(T=T, P=P, K_P=K_P, N=N, M0=M, tau=1.1, max_level=3).padded == policies * M * 8


@laws
@given(T=small, P=small, K=small, N=small, M=small, R=st.integers(0, 4), S=small)
def test_iosmc_counts_its_nested_filters(T, P, K, N, M, R, S):
    def filters(moves):
        """IBIS over the steps of one trajectory; at a degenerate step t every move re-evaluates t
        likelihoods.
        """
        return sum(M + M * moves * t for t in range(1, T + 1))

    def total(moves):
        one_kernel = N * M * T + (N - 1) * filters(moves)
        return P * (K * S * one_kernel + N * filters(moves))

    cost = IOSMC2(T=T, P=P, K=K, N=N, M=M, R=R, S=S)
    assert cost.lower == total(0)
    assert cost.upper == total(R)


def test_networks_share_the_upfront_steps_and_leave_the_remainder_unspent():
    one = Pretrained(T=50, P=50, K_P=500, N=1024, K_U=175_000, B_U=1024)
    three = dataclasses.replace(one, networks=3)
    assert three.steps_per_network == 58_333
    assert one.nle - three.nle == 1 * 1024 * 50
    with pytest.raises(InvalidValueError, match="at least one step for each of 3 networks"):
        dataclasses.replace(one, K_U=2, networks=3)


# --- what fits in a budget ---


@laws
@given(budgets, sizes, sizes, sizes, sizes, small, small)
def test_what_fits_is_maximal(budget, T, K, N, B, P, networks):
    """The configuration fits and the next larger does not; where nothing fits, the smallest indeed
    costs too much.
    """
    makers = {
        "M": (PCE, {"T": T, "P": P, "K_P": K, "N": N}, 1),
        "K_U": (
            Pretrained,
            {"T": T, "P": P, "K_P": K, "N": N, "B_U": B, "networks": networks},
            networks,
        ),
        "K_J": (JointVarPost, {"T": T, "P": P, "B_J": B}, 1),
    }
    for free, (kind, rest, step) in makers.items():
        smallest = kind(**rest, **{free: step})
        if smallest.nle > budget:
            with pytest.raises(BudgetExceededError, match=f"expected at least {smallest.nle:,} "):
                kind.within(budget, **rest)
            continue
        found = kind.within(budget, **rest)
        value = getattr(found, free)
        assert found == kind(**rest, **{free: value})
        assert found.nle <= budget < kind(**rest, **{free: value + step}).nle


def test_the_papers_sizes_follow_from_its_budgets():
    location = {"T": 30, "K_P": 10_000, "N": 1024}
    budget = 6_144_000_000
    assert PCE.within(budget, **location).M == 19
    assert PCE.within(budget, **location, P=5).M == 3
    assert PCE.within(10 * budget, **location).M == 199
    assert Pretrained.within(budget, **location, B_U=1024).K_U == 190_000
    assert Pretrained.within(budget, **location, B_U=1024, P=5).K_U == 150_000
    assert JointVarPost.within(budget, T=30, B_J=1024, P=5).K_J == 40_000
    assert Pretrained.within(10_240_000_000, T=50, K_P=500, N=1024, B_U=1024, P=50).K_U == 175_000


def test_too_many_policies_are_refused_with_the_number_that_fits():
    rest = {"T": 30, "K_P": 10_000, "N": 1024}
    with pytest.raises(BudgetExceededError, match=r"P=11 policies.*Fix: lower P to 10, or raise"):
        PCE.within(6_144_000_000, **rest, P=11)
    assert PCE.within(6_144_000_000, **rest, P=10).M == 1
    with pytest.raises(BudgetExceededError, match=r"P=20 policies.*Fix: lower P to 19, or raise"):
        Pretrained.within(6_144_000_000, **rest, B_U=1024, P=20)
    with pytest.raises(BudgetExceededError, match="Fix: raise the budget, or plan"):
        PCE.within(0, **rest)


@pytest.mark.parametrize("budget", WRONG, ids=repr)
def test_budgets_to_fit_are_plain_integers(plain, budget):
    with pytest.raises(InvalidValueError, match="the NLE budget"):
        plain.PCE.within(budget, T=30, K_P=10, N=10)


# --- MLMC ---


@laws
@given(st.floats(0.1, 5.0), st.integers(0, 40))
def test_clipped_levels_are_a_distribution_and_their_weights_its_inverse(tau, max_level):
    probabilities = level_probabilities(tau=tau, max_level=max_level)
    assert len(probabilities) == max_level + 1
    assert math.fsum(probabilities) == pytest.approx(1, abs=1e-12)
    weights = level_weights(tau=tau, max_level=max_level)
    assert all(
        p * w == pytest.approx(1, rel=1e-15) for p, w in zip(probabilities, weights, strict=True)
    )


def test_expected_inner_samples_are_exact_where_the_level_probabilities_are():
    """τ = 2 has probabilities 3/4 · 4^−l, so the sums can be done in fractions."""
    for max_level in (0, 1, 12):
        cost = MLMC(T=1, K_P=1, N=1, M0=3, tau=2.0, max_level=max_level)
        clipped = [Fraction(3, 4) * Fraction(1, 4**l) for l in range(max_level)] + [
            Fraction(1, 4**max_level)
        ]
        assert cost.expected_inner_capped == pytest.approx(
            float(3 * sum(p * 2**l for l, p in enumerate(clipped))), rel=1e-14
        )
        assert cost.expected_inner_uncapped == pytest.approx(4.5, rel=1e-14)


def test_the_cap_lowers_the_papers_expected_inner_count_from_7_96_to_4_93():
    cost = TABLES["mlmc"].rows[0].cost
    assert math.floor(100 * cost.expected_inner_uncapped) / 100 == 7.96
    assert round(cost.expected_inner_capped, 2) == 4.93
    high = dataclasses.replace(cost, max_level=400)
    assert high.expected_inner_capped == pytest.approx(cost.expected_inner_uncapped, rel=1e-9)


@pytest.mark.parametrize("tau", [0.0, -1.0, math.nan, math.inf, True, "1.1", None], ids=repr)
def test_the_rate_of_mlmc_is_a_positive_number(plain, tau):
    with pytest.raises(InvalidValueError, match="rate τ"):
        plain.MLMC(T=1, K_P=1, N=1, M0=1, tau=tau, max_level=12)


def test_a_mean_that_does_not_exist_and_levels_that_never_come_are_refused():
    slow = MLMC(T=1, K_P=1, N=1, M0=1, tau=1.0, max_level=12)
    assert slow.expected_inner_capped == pytest.approx(7.0)  # 12 · 1/2 + 1
    with pytest.raises(InvalidValueError, match="finite mean cost"):
        _ = slow.expected_inner_uncapped
    with pytest.raises(InvalidValueError, match="not zero"):
        level_weights(tau=100.0, max_level=12)


# --- the paper's tables ---


@pytest.mark.parametrize(
    ("table", "budget"),
    [("location", 6_144_000_000), ("dynamical", 10_240_000_000), ("gravimetry", 4_096_000_000)],
)
def test_every_row_of_the_paper_closes_its_budget(table, budget):
    assert TABLES[table].budget == budget
    rows = [row for row in TABLES[table].rows if "not in the paper" not in row.remark]
    assert {(row.methods[0], row.cost.P) for row in rows} == set(
        itertools.product(("score", "pce", "jointvarpost"), (1, 50 if table == "dynamical" else 5))
    )
    for row in rows:
        assert row.cost.nle == (10 * budget if "PCE*" in row.remark else budget), row


def test_the_split_rows_of_the_dynamical_systems_stay_within_the_budget():
    split = [row.cost for row in TABLES["dynamical"].rows if "not in the paper" in row.remark]
    assert [(cost.P, cost.networks, cost.steps_per_network, cost.nle) for cost in split] == [
        (3, 3, 66_166, 10_239_897_600),
        (50, 3, 58_333, 10_239_948_800),
    ]


def test_iosmc_and_mlmc_have_their_exact_integers():
    iosmc = TABLES["iosmc"].rows[0].cost
    assert (iosmc.lower, iosmc.upper) == (1_336_294_400, 53_427_776_000)
    assert all(iosmc.lower < realised < iosmc.upper for realised in (9.9e9, 1.5e10, 1.8e10))
    mlmc = TABLES["mlmc"].rows[0].cost
    assert mlmc.padded == 12_288_000_000_000
    assert mlmc.bill()["nle_expected_uncapped"] == pytest.approx(2.4e10, rel=0.005)


def test_amounts_are_integers_unless_they_are_expectations():
    for table in TABLES.values():
        for row in table.rows:
            assert isinstance(row.cost, Cost)
            for name, amount in row.cost.bill().items():
                assert type(amount) is (float if "expected" in name else int), name


def test_the_ledger_needs_no_jax():
    code = (
        "import sys, scorebed.nle; sys.exit(any(m in sys.modules for m in ('jax', 'numpy', "
        "'equinox')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_entry_is_settled_for_what_it_came_to_and_never_for_more():
    ledger = Ledger(100)
    ledger.charge("policy", 80)
    ledger.settle("policy", 30)
    ledger.charge("other", 70)
    assert ledger.totals == {"policy": 30, "other": 70}
    with pytest.raises(InvalidValueError, match="at most the 30"):
        ledger.settle("policy", 31)
