"""Learning rates step by step, against their formulas: what Adam is given, and what the steps
of a training follow.
"""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from scorebed.methods.gradient import SCHEDULES
from scorebed.methods.sections import OF_SCHEDULES, PolicyTraining
from scorebed.training.score import score_optimiser

TRAINING = PolicyTraining(
    steps=40,
    batch=8,
    learning_rate=2e-3,
    schedule="constant",
    decay_rate=0.5,
    decay_every=10,
    final_rate=1e-4,
    monitor_every=10,
    monitor_inner=8,
)
FORMULAS = {
    "constant": lambda _: 2e-3,
    "cosine": lambda n: 1e-4 + (2e-3 - 1e-4) * 0.5 * (1 + math.cos(math.pi * min(n, 40) / 40)),
    "exponential": lambda n: 2e-3 * 0.5 ** (n / 10),
    "staircase": lambda n: 2e-3 * 0.5 ** (n // 10),
}


def rates(optimiser: optax.GradientTransformation, steps: int) -> np.ndarray:
    """By how much Adam moves a parameter whose gradient is always one: its rate, step by step."""
    params = jnp.zeros(())
    state = optimiser.init(params)
    moves = []
    with jax.numpy_dtype_promotion("standard"):
        for _ in range(steps):
            update, state = optimiser.update(jnp.ones(()), state, params)
            moves.append(-float(update))
    return np.asarray(moves)


def test_every_schedule_has_a_formula_here():
    assert set(FORMULAS) == set(SCHEDULES) == set(OF_SCHEDULES)


@pytest.mark.parametrize("name", FORMULAS)
def test_a_schedule_follows_its_formula_at_every_step(name):
    """A wrong period, base, last rate or number of steps fails."""
    made = SCHEDULES[name](dataclasses.replace(TRAINING, schedule=name))
    found = [float(made(n)) if callable(made) else float(made) for n in range(45)]
    np.testing.assert_allclose(found, [FORMULAS[name](n) for n in range(45)], rtol=1e-5)


def test_the_rate_of_a_score_warms_up_over_a_thousandth_and_falls_to_its_floor():
    """Adam moves by its rate where the gradient is constant, once its means have settled."""
    steps, peak, floor = 2000, 1e-2, 1e-4
    found = rates(
        score_optimiser(steps=steps, learning_rate=peak, floor_rate=floor, clip=10.0), steps
    )
    warmup = 2  # a thousandth of the steps
    decay = [
        floor + (peak - floor) * 0.5 * (1 + math.cos(math.pi * (n - warmup) / (steps - warmup)))
        for n in range(warmup, steps)
    ]
    assert found[0] == 0
    np.testing.assert_allclose(found[1], peak / warmup, rtol=1e-3)
    np.testing.assert_allclose(found[warmup:], decay, rtol=2e-3)
