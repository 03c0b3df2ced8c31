"""Likelihood evaluations per second of our tasks against C kernels of the same arithmetic, on all cores.

The interface of `Task` stands or falls with this ratio: `vmap` of an unbatched `log_prob` over contrastive parameters has to
reach 0.3 of the C kernel. Both run in one process, turn by turn, and the best of several rounds counts.

    make bench, or: python benchmarks/likelihood_kernels.py
"""

import ctypes
import pathlib
import subprocess
import tempfile
import time
from collections.abc import Callable

import scorebed  # before JAX, so that the memory allocator is set
import jax
import jax.random as jr
import numpy as np
from scorebed.policies.random import RandomDesigns
from scorebed.rollout import log_likelihoods, simulate
from scorebed.samplers.paper import paper_sampler
from scorebed.tasks import TASKS

HERE = pathlib.Path(__file__).parent
GOAL = 0.3


def compile_kernels(folder: str) -> ctypes.CDLL:
    library = f"{folder}/likelihood_kernels.so"
    flags = ["-O3", "-march=native", "-ffast-math", "-fopenmp", "-shared", "-fPIC"]
    subprocess.run(["gcc", *flags, str(HERE / "likelihood_kernels.c"), "-o", library, "-lm"], check=True)
    return ctypes.CDLL(library)


def seconds(work: Callable[[], None]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def compare(kernel: Callable[..., None], name: str, trajectories: int, contrastive: int, rounds: int = 12) -> float:
    """Print one line and give ours / C."""
    task = TASKS[name]()
    policy = RandomDesigns(paper_sampler(task))
    runs = jax.vmap(lambda key: simulate(task, policy, key=key))(jr.split(jr.key(0), trajectories))
    thetas = jax.vmap(lambda key: task.prior.sample(key=key))(jr.split(jr.key(1), contrastive))

    ours = jax.jit(jax.vmap(lambda ys, xis: log_likelihoods(task, thetas, ys, xis)))
    columns, xis, ys = (np.ascontiguousarray(a, np.float32) for a in (thetas.T, runs.xis, runs.ys))
    out = np.empty((trajectories, contrastive), np.float32)
    pointers = [a.ctypes.data_as(ctypes.c_void_p) for a in (columns, xis, ys, out)]

    def run_c() -> None:
        kernel(ctypes.c_long(trajectories), ctypes.c_long(task.horizon), ctypes.c_long(contrastive), *pointers)

    def run_ours() -> None:
        ours(runs.ys, runs.xis).block_until_ready()

    run_c()
    error = np.abs(np.asarray(ours(runs.ys, runs.xis)) - out) / (1 + np.abs(out))
    assert np.quantile(error, 0.999) < 1e-3, f"{name}: the C kernel and the task disagree by {error.max()}"
    times = [(seconds(run_c), seconds(run_ours)) for _ in range(rounds)]
    c, jitted = (min(column) for column in zip(*times, strict=True))
    giga = trajectories * contrastive * task.horizon / 1e9
    verdict = "met" if c / jitted >= GOAL else "MISSED"
    print(
        f"{name:<18}{trajectories:>6}{contrastive:>8}{giga / c:>9.2f}{giga / jitted:>9.2f}{c / jitted:>8.2f}  {verdict}"
    )
    return c / jitted


def main() -> None:
    print(f"likelihood evaluations, 10⁹/s; scorebed {scorebed.__version__}, jax {jax.__version__}, goal {GOAL} of C")
    print(f"{'task':<18}{'N':>6}{'M':>8}{'C':>9}{'ours':>9}{'ratio':>8}")
    with tempfile.TemporaryDirectory() as folder:
        library = compile_kernels(folder)
        for name, kernel in (("location-finding", library.location_finding), ("double-link", library.double_link)):
            for trajectories, contrastive in ((256, 1024), (256, 4096), (64, 16384)):
                compare(kernel, name, trajectories, contrastive)


if __name__ == "__main__":
    main()
