"""Likelihood evaluations per second of our tasks against C kernels of the same arithmetic, on all
cores.

The interface of `Task` stands or falls with this ratio: `vmap` of an unbatched `log_prob` over
contrastive parameters has to reach 0.3 of the C kernel. Both run in one process, turn by turn, and
the best of several rounds counts.

    make bench, or: python benchmarks/likelihood_kernels.py [--quick]
"""

import ctypes
import pathlib
import subprocess
import tempfile
from collections.abc import Callable

import scorebed  # before JAX, so that the memory allocator is set
import jax
import jax.random as jr
import numpy as np
from measuring import arguments, best_of, table
from scorebed.policies.random import RandomDesigns
from scorebed.rollout import Trajectory, log_likelihoods, simulate
from scorebed.samplers.paper import paper_sampler
from scorebed.tasks import make_task
from scorebed.tasks.base import Task

HERE = pathlib.Path(__file__).parent
GOAL = 0.3
NAMES = (
    "location-finding",
    "location-finding-3d",
    "gravimetry",
    "pendulum",
    "cart-pole",
    "double-link",
)
SIZES = ((256, 1024), (256, 4096), (64, 16384))


def compile_kernels(folder: str) -> ctypes.CDLL:
    library = f"{folder}/likelihood_kernels.so"
    flags = ["-O3", "-march=native", "-ffast-math", "-fopenmp", "-shared", "-fPIC"]
    subprocess.run(
        ["gcc", *flags, str(HERE / "likelihood_kernels.c"), "-o", library, "-lm"], check=True
    )
    return ctypes.CDLL(library)


def c_kernel(
    library: ctypes.CDLL, name: str, runs: Trajectory
) -> Callable[[np.ndarray, np.ndarray], None]:
    """The C kernel of a task on some trajectories: from the columns of parameters, [k, M], to
    log-likelihoods, [N, M].
    """
    work = getattr(library, name.replace("-", "_"))
    xis, ys = (np.ascontiguousarray(a, np.float32) for a in (runs.xis, runs.ys))

    def call(columns: np.ndarray, out: np.ndarray) -> None:
        assert columns.flags.c_contiguous, "a row for every parameter"
        pointers = [a.ctypes.data_as(ctypes.c_void_p) for a in (columns, xis, ys, out)]
        work(
            ctypes.c_long(len(ys)),
            ctypes.c_long(ys.shape[1]),
            ctypes.c_long(columns.shape[1]),
            *pointers,
        )

    return call


def parameters(task: Task, count: int) -> jax.Array:
    return jax.vmap(lambda key: task.prior.sample(key=key))(jr.split(jr.key(1), count))


def random_runs(task: Task, count: int) -> Trajectory:
    policy = RandomDesigns(paper_sampler(task))
    return jax.vmap(lambda key: simulate(task, policy, key=key))(jr.split(jr.key(0), count))


def agree(name: str, ours: np.ndarray, theirs: np.ndarray) -> None:
    error = np.abs(ours - theirs) / (1 + np.abs(theirs))
    assert np.quantile(error, 0.999) < 1e-3, (
        f"{name}: the C kernel and the task disagree by {error.max()}"
    )


def compare(
    library: ctypes.CDLL, name: str, trajectories: int, contrastive: int, rounds: int
) -> list[str]:
    """A row of the table."""
    task = make_task(name)
    runs, thetas = random_runs(task, trajectories), parameters(task, contrastive)
    ours = jax.jit(jax.vmap(lambda ys, xis: log_likelihoods(task, thetas, ys, xis)))
    columns, out = (
        np.ascontiguousarray(thetas.T, np.float32),
        np.empty((trajectories, contrastive), np.float32),
    )
    kernel = c_kernel(library, name, runs)
    c, jitted = best_of(rounds, lambda: kernel(columns, out), lambda: ours(runs.ys, runs.xis))
    agree(name, np.asarray(ours(runs.ys, runs.xis)), out)
    giga, ratio = trajectories * contrastive * task.horizon / 1e9, c / jitted
    verdict = "met" if ratio >= GOAL else "MISSED"
    return [
        name,
        f"{trajectories:,}",
        f"{contrastive:,}",
        f"{giga / c:.2f}",
        f"{giga / jitted:.2f}",
        f"{ratio:.2f}",
        verdict,
    ]


def main() -> None:
    quick = arguments(__doc__).parse_args().quick
    print(
        f"likelihood evaluations, 10⁹/s; scorebed {scorebed.__version__}, jax {jax.__version__}, "
        f"goal {GOAL} of C"
    )
    with tempfile.TemporaryDirectory() as folder:
        library = compile_kernels(folder)
        sizes, rounds = (((4, 64),), 1) if quick else (SIZES, 12)
        rows = [compare(library, name, *size, rounds) for name in NAMES for size in sizes]
    table(
        ("task", "trajectories", "contrastive", "C, 10⁹/s", "ours, 10⁹/s", "ratio", f"goal {GOAL}"),
        rows,
    )


if __name__ == "__main__":
    main()
