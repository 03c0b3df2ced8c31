"""Few repeats: Welch's test against SciPy's and a value by hand, marks, and orders of tables."""

import math

import pytest
from scipy import stats

from scorebed.paper.statistics import Sample, agreement, best_rows, differ, welch_p

A, B = [10.7, 10.9, 10.8, 10.85], [10.2, 10.0, 10.3, 9.9]


def test_a_sample_is_a_mean_and_its_standard_error():
    found = Sample.of([1.0, 2.0, 3.0, 6.0])
    assert found.mean == 3.0
    assert found.se == pytest.approx(math.sqrt((4 + 1 + 0 + 9) / 3 / 4))
    assert math.isnan(Sample.of([2.0]).se)


@pytest.mark.parametrize(("a", "b"), [(A, B), (A, A[:3]), (B, [9.0, 11.0])])
def test_welch_from_means_and_errors_is_scipys_from_the_values(a, b):
    expected = stats.ttest_ind(a, b, equal_var=False).pvalue
    assert welch_p(Sample.of(a), Sample.of(b)) == pytest.approx(expected, rel=1e-9)


def test_welch_by_hand():
    """Equal errors of two and two repeats: t = 1/√2 with ν = 2, for which p = 1 − t/√(2 + t²)."""
    t = 1 / math.sqrt(2)
    expected = 1 - t / math.sqrt(2 + t**2)
    assert welch_p(Sample(1.0, 1.0, 2), Sample(0.0, 1.0, 2)) == pytest.approx(expected)


def test_without_errors_nothing_is_told_apart_and_without_spread_everything_is():
    single = Sample.of([1.0])
    assert math.isnan(welch_p(single, Sample.of(A)))
    assert not differ(single, Sample.of(A))
    assert not differ(Sample(1.0, 0.0, 4), Sample(1.0, 0.0, 4))
    assert differ(Sample(1.0, 0.0, 4), Sample(1.1, 0.0, 4))


def test_rows_that_cannot_be_told_from_the_best_are_marked():
    rows = {"a": Sample.of(A), "near": Sample(10.78, 0.06, 4), "far": Sample.of(B)}
    assert best_rows(rows) == {"a", "near"}
    assert best_rows({"a": Sample.of([1.0]), "b": Sample.of([2.0])}) == {"b"}
    assert best_rows({"a": Sample(math.nan, math.nan, 4)}) == set()
    assert best_rows({}) == set()


def test_orders_agree_by_kendall_and_by_pairs_that_differ_in_both():
    def row(mean, se=0.01):
        return Sample(mean, se, 4)

    paper = {"a": row(3.0), "b": row(2.0), "c": row(1.0), "d": row(0.99), "unrun": row(9.0)}
    ours = {"a": row(2.0), "b": row(3.0), "c": row(1.0, 5.0), "d": row(0.5)}
    found = agreement(ours, paper)
    # (a, b) the other way; (c, d), (a, c), (b, c) undecided by our wide c; the rest the same way
    assert found.opposite == [("b", "a")]
    assert found.same == [("a", "d"), ("b", "d")]
    assert found.pairs == 6
    assert found.tau == pytest.approx((5 - 1) / 6)
    assert math.isnan(agreement({"a": row(1.0)}, paper).tau)
