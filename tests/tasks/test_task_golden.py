"""One experiment per task, committed: a change of any model, prior or design space shows here.

`golden.json` holds, for a fixed key, θ, the designs, the outcomes and the log-likelihood. When a
change is meant, write the file anew and name the change in the changelog under *Numbers changed*:

    SCOREBED_WRITE_GOLDEN=1 python -m pytest tests/tasks/test_task_golden.py
"""

import functools
import json
import os
import pathlib

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jaxtyping import Array

from scorebed.rollout import log_likelihood, simulate_outcomes
from scorebed.tasks.base import Task

PATH = pathlib.Path(__file__).with_name("golden.json")


@functools.cache
def normals() -> Array:
    """The randomness of every experiment here, drawn at once because compiling a generator costs
    more than a task.
    """
    return jr.normal(jr.key(2024), (100,))


@eqx.filter_jit
def draw(task: Task, normals: Array) -> dict[str, Array]:
    sizes = [task.prior.dim, task.horizon * task.designs.dim, task.horizon * task.outcome_dim]
    z, u, noise, _ = jnp.split(normals, [sum(sizes[:i]) for i in (1, 2, 3)])
    theta, xis = task.prior.from_latent(z), task.designs.constrain(u.reshape(task.horizon, -1))
    ys = simulate_outcomes(task, theta, xis, noise.reshape(task.horizon, -1))
    return {
        "theta": theta,
        "xis": xis,
        "ys": ys,
        "log_likelihood": log_likelihood(task, theta, ys, xis),
    }


def test_the_committed_experiment_is_reproduced(name: str, task: Task) -> None:
    drawn = {what: np.asarray(value) for what, value in draw(task, normals()).items()}
    if os.environ.get("SCOREBED_WRITE_GOLDEN"):
        golden = json.loads(PATH.read_text()) if PATH.exists() else {}
        golden[name] = {what: value.tolist() for what, value in drawn.items()}
        PATH.write_text(json.dumps(dict(sorted(golden.items())), indent=1) + "\n")
        pytest.skip("written, not compared")
    for what, value in json.loads(PATH.read_text())[name].items():
        assert drawn[what].dtype == np.float32
        np.testing.assert_allclose(
            drawn[what], value, rtol=1e-5, atol=1e-6 * np.abs(value).max(), err_msg=what
        )
