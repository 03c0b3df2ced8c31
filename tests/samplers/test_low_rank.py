"""Low-rank designs: their size, rank and smoothness."""

import math

import jax
import jax.random as jr
import numpy as np
import pytest

from scorebed.samplers import LowRank
from scorebed.samplers.low_rank import RANKS, time_bases
from scorebed.tasks.spaces import Quantity, Real


@pytest.mark.parametrize("horizon", [1, 2, 9, 30])
def test_every_basis_has_rows_of_mean_square_one_and_its_rank(horizon: int):
    bases = time_bases(horizon)
    assert bases.shape == (3 * len(RANKS), horizon, 8)
    np.testing.assert_allclose((bases**2).sum(2).mean(1), 1)
    for basis, rank in zip(bases, RANKS * 3, strict=True):
        assert (np.abs(basis).max(0) > 1e-9).sum() <= rank
        if horizon > 2 * max(RANKS):
            assert np.linalg.matrix_rank(basis) == rank


def test_columns_are_of_comparable_size():
    for basis, rank in zip(time_bases(30), RANKS * 3, strict=True):
        sizes = np.sqrt((basis[:, :rank] ** 2).mean(0))
        assert sizes.max() / sizes.min() < 1.5


# Twenty coordinates, more than the largest rank, so that a draw shows its rank.
SAMPLER = LowRank(30, Real(tuple(Quantity(f"x{i + 1}") for i in range(20))))


@pytest.fixture(scope="module")
def draws() -> np.ndarray:
    return np.asarray(
        jax.jit(jax.vmap(lambda key: SAMPLER.sample(key=key)))(jr.split(jr.key(0), 1400))
    )


def test_compiled_and_batched_equal_uncompiled(draws: np.ndarray):
    assert draws.dtype == np.float32
    np.testing.assert_allclose(
        draws[0], SAMPLER.sample(key=jr.split(jr.key(0), 1400)[0]), atol=1e-5
    )


def test_mean_square_is_that_of_the_scale(draws: np.ndarray):
    """Averaged over a trajectory E u² = E s²; bases that are not normalised would make it grow with
    the rank, up to 8 times.
    """
    squares = (draws**2).mean((1, 2))
    truth = (2.0**3 - 0.5**3) / (3 * 1.5)
    assert (
        abs(squares.mean() - truth) <= 4.892 * squares.std() / math.sqrt(len(draws)) <= 0.15 * truth
    )


def test_ranks_are_uniform(draws: np.ndarray):
    """A rank that comes up half as often as it should is caught."""
    exact = draws.astype(np.float64)
    grams = np.einsum("nti,nsi->nts", exact, exact) / (exact**2).sum((1, 2))[:, None, None]
    counts = np.bincount((np.linalg.eigvalsh(grams) > 1e-8).sum(1), minlength=9)
    assert counts[:2].sum() == 0
    assert abs(counts[2:] / len(draws) - 1 / 7).max() <= 4.892 * math.sqrt(6 / 49 / len(draws))


def test_draws_are_smooth_and_of_different_kinds(draws: np.ndarray):
    """Steps are shorter than the designs (√2 times as long for independent ones); a sine starts and
    ends near zero, a spiral only starts there, a Fourier series does neither. Each is a third of
    the draws.
    """
    sizes = np.sqrt((draws**2).mean((1, 2)))
    assert (np.sqrt((np.diff(draws, axis=1) ** 2).mean((1, 2))) / sizes).max() < 0.9
    first, last = (np.sqrt((draws[:, t] ** 2).mean(1)) / sizes for t in (0, -1))
    starts_small, ends_small = first < 0.5, last < 0.5
    for kind in (
        starts_small & ends_small,
        starts_small & ~ends_small,
        ~starts_small & ~ends_small,
    ):
        assert abs(kind.mean() - 1 / 3) <= 4.892 * math.sqrt(2 / 9 / len(draws))
