"""Runs as the first format has them: those that were kept, and others around files of any
architecture.

`kinds.json` holds, for policies and scores, the names and shapes of their leaves and the numbers
that come out when the leaves are filled by `fill`: a file that would be large is written when it is
needed."""

import json
import re
import shutil
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from safetensors.numpy import save_file

RUNS = Path(__file__).parents[1] / "fixtures" / "runs-v1"
SCORES = ("laplace",)
CHANGED = ("transformer", "transformer-direct")  # the network has another layout since
POLICIES = (
    "location-finding/modes",
    "location-finding/attention",
    "pendulum/plan",
    "pendulum/gru",
    "linear-gaussian/static",
    "gravimetry/attention",
)


def fill(name: str, shape: list[int]) -> np.ndarray:
    """Numbers that tell a leaf from every other one. The stream of RandomState is frozen."""
    drawn = np.random.RandomState(zlib.crc32(name.encode())).uniform(-0.1, 0.1, shape)
    return np.asarray(drawn, np.float32)


def write_file(path: Path, leaves: Mapping[str, list[int]], metadata: Mapping[str, Any]) -> None:
    """A file of leaves, as `scorebed` 0.1.0 wrote it."""
    header = json.dumps({"format": 1, "keys": {}, "metadata": metadata})
    save_file(
        {name: fill(name, shape) for name, shape in leaves.items()},
        path,
        metadata={"scorebed": header},
    )


def copy_run(name: str, path: Path, **values: str) -> Path:
    """A copy of a kept run, with other values in its configuration: `kind="laplace"` for the line
    `kind = …`.
    """
    shutil.copytree(RUNS / name, path)
    text = (path / "config.toml").read_text()
    for key, value in values.items():
        text, count = re.subn(
            rf"^{key} = .*$", f"{key} = {json.dumps(value)}", text, count=1, flags=re.MULTILINE
        )
        assert count == 1, key
    (path / "config.toml").write_text(text)
    return path


def policy_run(name: str, kind: Mapping[str, Any], path: Path) -> Path:
    """A run of TASK/POLICY."""
    task, policy = name.split("/")
    copy_run("pce", path, task=task, policy=policy)
    write_file(
        path / "policy-0.safetensors", kind["leaves"], {"task": kind["task"], "policy": policy}
    )
    return path


def score_run(name: str, kind: Mapping[str, Any], path: Path) -> Path:
    """A run with a score of that kind on the linear-Gaussian task."""
    sizes = {} if name == "laplace" else {"width": 16, "blocks": 1, "heads": 2}
    copy_run("score", path, kind=name, **sizes)
    write_file(path / "score-0.safetensors", kind["leaves"], {"task": kind["task"], "kind": name})
    return path


@eqx.filter_jit
def designs(policy: Any, task: Any) -> Any:
    """The first three designs of a policy, with the same outcome after each."""
    noise, memory, found = policy.sample_noise(task.horizon, key=jr.key(1)), policy.init(), []
    for step in range(3):
        xi = policy.design(memory, noise[step])
        memory = policy.update(memory, xi, jnp.full((task.outcome_dim,), 0.3))
        found.append(xi)
    return jnp.stack(found)


@eqx.filter_jit
def scores(score: Any, task: Any) -> Any:
    """The value of a score on one history, both of its parts in one vector."""
    steps = jnp.arange(1.0, task.horizon + 1)[:, None]
    s_y, s_xi = score(
        jnp.sin(steps) * jnp.ones(task.outcome_dim),
        0.5 * jnp.cos(steps) * jnp.ones(task.designs.dim),
    )
    return jnp.concatenate([s_y.ravel(), s_xi.ravel()])
