"""Runs for live experiments that nobody had to train: a fresh policy saved as if it were trained,
and a record.
"""

import dataclasses
from pathlib import Path

import equinox as eqx
import jax.random as jr

from scorebed._jit import jit_once
from scorebed.policies import make_policy
from scorebed.presets.reader import preset_values
from scorebed.runs.artifacts import fingerprint
from scorebed.runs.config import Sources, make_config
from scorebed.runs.folder import RunFolder
from scorebed.runs.record import BoundsRecord, Record
from scorebed.runs.serialisation import save_leaves
from scorebed.runs.user_task import is_user_task, read_task
from scorebed.tasks import make_task

BOUNDS = BoundsRecord(
    lower=1.1,
    lower_se=0.01,
    upper=1.3,
    upper_se=0.01,
    outer=64,
    inner=1000,
    ceiling=6.9,
    saturated=0.0,
)


def make_run(
    path: Path,
    task_name: str = "linear-gaussian",
    policy: str = "dad",
    seed: int = 0,
    trained_by: str = "pce",
) -> Path:
    """A finished run in a new folder, of a built-in task or FILE.py:NAME. Policy `random` needs no
    file.
    """
    own = read_task(task_name) if is_user_task(task_name) else None
    task = make_task(task_name) if own is None else own.task
    method = "random" if policy == "random" else trained_by
    values = preset_values("quick", task_name, task, method=method)
    config = dataclasses.replace(
        make_config(values),
        policy=policy,
        sources=Sources(task="" if own is None else own.digest),
    )
    with RunFolder.create(path, config) as folder:
        if policy != "random":
            # Larger outputs than a fresh policy has, so that designs differ plainly with the data,
            # and a first design away from the origin.
            made = jit_once(lambda key: make_policy(policy, task, key=key))(jr.key(seed))
            arrays = eqx.filter(made, eqx.is_array)
            if policy == "dad":
                emitter = getattr(arrays, "inside", arrays).emitter
                arrays = eqx.tree_at(
                    lambda p: (
                        getattr(p, "inside", p).emitter.weight,
                        getattr(p, "inside", p).emitter.bias,
                    ),
                    arrays,
                    (20 * emitter.weight, emitter.bias + 0.5),
                )
            save_leaves(path / "policy-0.safetensors", arrays, {"task": fingerprint(task)})
        record = Record(
            run=path.name,
            task=task_name,
            method=method,
            preset="quick",
            policy=policy,
            policies=1,
            seed=seed,
            bounds=BOUNDS,
            bound="contrastive",
            nle=0,
            nle_stages={},
            nle_evaluation=0,
            seconds={},
            references={},
        )
        folder.write_json_atomic("record.json", record.values())
    return path
