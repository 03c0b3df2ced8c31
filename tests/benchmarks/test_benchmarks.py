"""The benchmarks run: each with sizes whose figures mean nothing, and a table at the end. Timings
are asserted nowhere.
"""

import os
import pathlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest

FOLDER = pathlib.Path(__file__).parents[2] / "benchmarks"
SCRIPTS = [
    "likelihood_kernels",
    "bounds",
    "steps",
    "startup",
    "restarts",
    "memory",
    "costs",
    "live",
    "minutes",
    "accelerator",
    "scaling",
    "paired",
    "two_steps",
    "acknowledged",
]


def test_every_script_is_tested_and_made_by_make_bench():
    scripts = {path.stem for path in FOLDER.glob("*.py") if "def main()" in path.read_text()}
    assert scripts == set(SCRIPTS)
    (line,) = (
        line
        for line in (FOLDER.parent / "Makefile").read_text().splitlines()
        if "benchmarks/" in line
    )
    assert line.split(" in ")[1].split(";")[0].split() == SCRIPTS


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow) for name in SCRIPTS])
def test_a_benchmark_runs_and_prints_a_table(name):
    done = subprocess.run(
        [sys.executable, FOLDER / f"{name}.py", "--quick"],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env=os.environ | {"XLA_FLAGS": "--xla_backend_optimization_level=0"},
    )
    assert done.returncode == 0, done.stderr
    assert "|" in done.stdout or name == "live"


@pytest.fixture
def flops(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    import flops

    yield flops.flops
    del sys.modules["flops"]


def test_operations_are_counted_as_often_as_loops_run(flops):
    a, b = jnp.ones((3, 4)), jnp.ones((4, 5))
    product = 2 * 3 * 4 * 5
    assert flops(jnp.matmul, a, b) == product

    def loop(a, b):
        return jax.lax.scan(
            lambda total, _: (total + jnp.exp(a @ b), None), jnp.zeros((3, 5)), None, length=7
        )[0]

    assert flops(loop, a, b) == 7 * (product + 2 * 15)
    assert flops(jax.jit(jax.vmap(loop, in_axes=(0, None))), jnp.ones((2, 3, 4)), b) == 2 * 7 * (
        product + 2 * 15
    )
    assert flops(lambda x: x.reshape(12)[:3].sum(), a) == 3
    with pytest.raises(ValueError, match="unknown length"):
        flops(lambda x: jax.lax.while_loop(lambda y: y < x, lambda y: y + 1, x), jnp.ones(()))
