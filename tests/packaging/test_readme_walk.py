"""Whoever follows the README in an empty environment, with a model of their own, gets there."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import time
import venv

import pytest

ROOT = pathlib.Path(__file__).parents[2]
EXAMPLE = "examples/tasks/sampling_times.py:SamplingTimes"
MODEL = '''"""How much dye to add: what a gram of clay takes up from a solution (Langmuir)."""

import jax.numpy as jnp
import numpyro.distributions as dist

from scorebed.tasks.base import IID, Gaussian
from scorebed.tasks.declare import measured, ordered, parameters, ranges


class Langmuir(IID, Gaussian):
    horizon = 6
    prior = parameters(
        {"capacity [mg/g]": dist.LogNormal(4.0, 0.3), "affinity [l/mg]": dist.LogNormal(-2.0, 0.7)}
    )
    designs = ranges({"concentration [mg/l]": (0.5, 100.0)})
    constraint = ordered(gap=0.5)  # dye is added, never removed
    outcomes = measured("uptake [mg/g]")
    additive_noise = True

    def mean(self, theta, state, xi):
        (capacity, affinity), (c,) = theta, xi
        return jnp.stack([capacity * affinity * c / (1 + affinity * c)])

    def scale(self, theta, state, xi):
        return [3.0]
'''


def commands() -> list[str]:
    """Those of the section on an experiment of one's own, as they stand there."""
    section = (ROOT / "README.md").read_text().split("## An experiment of your own")[1]
    block = section.split("```sh\n")[1].split("```")[0]
    return [line.partition("#")[0].strip() for line in block.splitlines()]


def test_the_readme_installs_checks_trains_and_measures():
    verbs = [command.split()[:2] for command in commands()]
    assert verbs == [
        ["python", "-m"],
        *(["scorebed", verb] for verb in ("check", "train", "live")),
    ]
    assert sum(EXAMPLE in command for command in commands()) == 3


def not_in_the_repository(folder: str, names: list[str]) -> set[str]:
    """What `.gitignore` leaves out: `runs` and `demo` at the root alone, since packages have such
    names too.
    """
    made = {"runs", "demo", "dist"} if pathlib.Path(folder) == ROOT else {"__pycache__", "_build"}
    return {name for name in names if name.startswith(".") or name in made}


@pytest.mark.slow
@pytest.mark.network
def test_the_readme_leads_from_an_empty_environment_to_a_trained_policy_in_ten_minutes(tmp_path):
    """Nothing but what the README says is done, in a copy of the source with one more file; an idle
    machine is assumed. Its designs have an order, so that there is something to train.
    """
    source, home = tmp_path / "source", tmp_path / "venv"
    shutil.copytree(ROOT, source, ignore=not_in_the_repository)
    (source / "clay.py").write_text(MODEL)
    begun = time.monotonic()
    venv.create(home, with_pip=True)
    clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "XLA_FLAGS")}
    clean["PATH"] = os.pathsep.join([str(home / "bin"), clean["PATH"]])
    for command in commands():
        mine = command.replace(EXAMPLE, "clay.py:Langmuir")
        done = subprocess.run(
            ["bash", "-c", mine],
            cwd=source,
            env=clean,
            input="31.5\nq\n",
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        sys.stdout.write(f"$ {mine}\n{done.stdout}")
        assert done.returncode == 0, done.stdout
    assert "stored: step 1, uptake 31.5" in done.stdout
    record = json.loads((source / "blood" / "record.json").read_text())
    assert record["lower"] > 0
    assert record.get("trained") is not False
    assert (source / "blood" / "policy-0.safetensors").is_file()
    assert time.monotonic() - begun < 600
