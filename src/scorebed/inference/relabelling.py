"""Exchangeable blocks named alike in every particle, so that each can be told from the others.

The posterior of K blocks that can be exchanged (sources, peaks) is the same for every order of
them: means over particles are means over the orders, all equal and of no use. The blocks of each
particle are put into the order in which they lie closest to the means of all (Stephens 2000),

    σ_n = argmin_σ Σ_b ‖(x_{n,σ(b)} − m_b) / s‖²,

with the means m_b and the mean spread s of the blocks as they were ordered before, again and again
until no order changes. Several particles are tried as the first means, and the least volume of s in
the end is kept. Blocks are then sorted by the mean of their first coordinate.

When wrong: where the data cannot tell blocks apart the split is one of many, and spreads are those
of ordered draws.
"""

import itertools
from collections.abc import Sequence

import numpy as np

STARTS = 8  # particles tried as the first mean
ROUNDS = 30
TINY = 1e-9  # of the spread over all blocks
MOST_LISTED = 5  # blocks of which all orders are tried; more of them are assigned


def relabelled(theta: np.ndarray, blocks: int) -> np.ndarray:
    """Particles [N, k] with their `blocks` equal blocks in a common order. O(N K! d), or O(N K³)
    for more than five blocks.
    """
    if blocks == 1 or len(theta) < 2:
        return theta
    rows = theta.reshape(len(theta), blocks, -1)
    spread = rows.reshape(-1, rows.shape[-1]).std(0)
    unit = np.where(spread > 0, spread, 1.0)
    each = [_around(rows / unit, first) for first in _starts(len(theta))]
    orders = min(each, key=lambda found: found[0])[1]
    named = np.take_along_axis(rows, orders[:, :, None], axis=1)
    return named[:, np.argsort(named[:, :, 0].mean(0))].reshape(theta.shape)


def _starts(count: int) -> Sequence[int]:
    return np.unique(np.linspace(0, count - 1, min(STARTS, count)).astype(int)).tolist()


def _around(rows: np.ndarray, first: int) -> tuple[float, np.ndarray]:
    """The log-volume of the blocks' spread, and every particle's order, starting with the blocks of
    one particle as the means.
    """
    centre, scale = rows[first], np.ones(rows.shape[-1])
    orders = np.tile(np.arange(rows.shape[1]), (len(rows), 1))
    for _ in range(ROUNDS):
        apart = (rows[:, None] - centre[None, :, None]) / scale
        new = _orders((apart**2).sum(-1))
        named = np.take_along_axis(rows, new[:, :, None], axis=1)
        centre = named.mean(0)
        scale = np.maximum(np.sqrt(((named - centre) ** 2).mean((0, 1))), TINY)
        done = bool((new == orders).all())
        orders = new
        if done:
            break
    return float(np.log(scale).sum()), orders


def _orders(cost: np.ndarray) -> np.ndarray:
    """Which block of every particle stands at each place: cost[n, b, c] is that of block c at
    place b.
    """
    count = cost.shape[1]
    if count > MOST_LISTED:
        from scipy.optimize import linear_sum_assignment

        return np.stack([linear_sum_assignment(each)[1] for each in cost])
    listed = np.asarray(list(itertools.permutations(range(count))))
    total = cost[:, np.arange(count), listed].sum(-1)
    return listed[total.argmin(1)]
