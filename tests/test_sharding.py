"""A batch that is shared out among two devices gives the results of one. JAX has two only in a
process that asked for them.
"""

import os
import subprocess
import sys

import pytest

from scorebed._sharding import device_mesh
from scorebed.errors import InvalidValueError

PROGRAM = """
import jax, jax.numpy as jnp, jax.random as jr, numpy as np
import equinox as eqx
from scorebed._sharding import device_mesh
from scorebed.policies.static import Static
from scorebed.scores.exact import ExactScore
from scorebed.tasks.oracles.linear_gaussian import LinearGaussian
from scorebed.training.policy import policy_gradient

task = LinearGaussian()
params, static = eqx.partition(Static(jnp.full((3, 1), 0.3), task.designs), eqx.is_inexact_array)
for batch, limit in ((8, 0.5), (7, 0.0)):
    found = []
    for count in (1, 2):
        with device_mesh(count):
            sizes = {"batch": batch, "trajectory_clip": limit}
            gradient = jax.jit(policy_gradient(static, task, ExactScore(task), **sizes))
            program = gradient.lower(params, jr.key(0)).compile().as_text()
            found.append(np.asarray(gradient(params, jr.key(0))[1].us))
            assert ("all-reduce" in program) == (count == 2 and batch == 8), (count, batch)
    np.testing.assert_allclose(*found, rtol=1e-5)
print("equal")
"""


@pytest.mark.slow
def test_two_devices_share_a_batch_and_agree_with_one():
    environment = os.environ | {
        "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
        "JAX_PLATFORMS": "cpu",
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "equal\n", done.stderr


@pytest.mark.parametrize("count", [0, 1000])
def test_devices_that_are_not_there_are_refused(count):
    with pytest.raises(InvalidValueError, match="--devices"):
        device_mesh(count)
