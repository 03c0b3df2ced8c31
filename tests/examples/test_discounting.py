"""The discounting example against the two forms in which it was published."""

import importlib.util
import math

import jax.numpy as jnp
import pytest

from user_files import EXAMPLES

SPEC = importlib.util.spec_from_file_location("discounting", EXAMPLES / "discounting.py")
discounting = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(discounting)


def phi(x):
    return 0.5 + 0.5 * math.erf(x / math.sqrt(2))


@pytest.mark.parametrize("now", [30.0, 49.0, 50.0, 52.0])
def test_the_program_has_erf_where_the_text_has_the_normal_distribution(now):
    """At k D = 1 a hundred later are worth 50 now."""
    theta, xi, noise = jnp.asarray([-4.0, 2.0]), jnp.asarray([now, 4.0]), 2.0 + 1e-3
    for task, share in (
        (discounting.Discounting(), 0.5 + 0.5 * math.erf((50 - now) / noise)),
        (discounting.as_printed, phi((50 - now) / noise)),
    ):
        sooner, later = task.probabilities(theta, None, xi)
        assert float(later) == pytest.approx(0.01 + 0.98 * share, abs=1e-5)
        assert float(sooner + later) == pytest.approx(1.0, abs=1e-6)
    assert discounting.as_printed.horizon == 20
