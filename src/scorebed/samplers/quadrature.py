"""Gauss–Legendre rules for E[f(x)], x ~ U(low, high), by which samplers integrate out their random
scales, correlations and rates.

Rules are computed by NumPy in double precision when a density is traced, and are constants of the
compiled program."""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float


class Rule(NamedTuple):
    """E[f(x)] ≈ Σ_i exp(log_weights_i) f(nodes_i)."""

    nodes: Float[np.ndarray, " n"]
    log_weights: Float[np.ndarray, " n"]


def uniform(low: float, high: float, count: int) -> Rule:
    """Nodes spaced evenly in x, denser at both ends: for integrands whose width does not depend on
    the position of their peak.
    """
    v, w = np.polynomial.legendre.leggauss(count)
    return Rule(low + (high - low) * (v + 1) / 2, np.log(w / 2))


def log_spread(low: float, high: float, count: int) -> Rule:
    """Nodes spaced evenly in log x, denser at both ends: for integrands whose *relative* width is
    constant. Needs low > 0.
    """
    nodes, log_weights = uniform(math.log(low), math.log(high), count)
    return Rule(np.exp(nodes), log_weights + nodes + math.log(math.log(high / low) / (high - low)))


def count_for(length: float, width: float) -> int:
    """Enough nodes on an interval of `length` for an integrand no narrower than a Gaussian bell of
    standard deviation `width`.

    The nodes in the middle are then at most 1.4 widths apart, which keeps the relative error of the
    rule below 2 exp(−2π²/1.4²) ≈ 1e-4; 16 more serve integrands that peak at an end."""
    return 16 + math.ceil(math.pi / 2 * length / (1.4 * width))
