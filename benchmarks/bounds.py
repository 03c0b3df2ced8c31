"""Evaluating bounds end to end, compared with C: `eig_bounds` of the paper's policy at realistic N
and M.

Ours draws parameters, noise and contrastive parameters, runs the policy, and sums likelihoods
without storing them. The C side is given trajectories and parameters and only evaluates the N·M·T
likelihoods, in the same chunks. Both alternate in one process and the best of several rounds
counts. Compilation is left out: an evaluation of the paper's size takes minutes.

    make bench, or: python benchmarks/bounds.py            about a minute
    python benchmarks/bounds.py --quick                    does it run?
"""

import ctypes
import tempfile
from typing import NamedTuple

import scorebed  # before JAX, so that the memory allocator is set
import jax
import jax.random as jr
import numpy as np
from likelihood_kernels import agree, c_kernel, compile_kernels, parameters
from measuring import arguments, best_of, table
from scorebed.bounds.contrastive import CHUNK, GROUPS, eig_bounds
from scorebed.policies import make_policy
from scorebed.presets.reader import shared_policy
from scorebed.rollout import log_likelihoods, simulate
from scorebed.tasks import make_task

OUTER, ROUNDS = 2048, 3


class Case(NamedTuple):
    """A task, enough contrastive parameters for some seconds of work, and the goal for the ratio of
    our speed to that of C.
    """

    name: str
    chunks: int
    goal: float


CASES = (
    Case("location-finding", 10, 0.5),
    Case("location-finding-3d", 2, 0.3),
    Case("gravimetry", 16, 0.3),
    Case("pendulum", 10, 0.3),
    Case("cart-pole", 8, 0.3),
    Case("double-link", 8, 0.3),
)


def compare(library: ctypes.CDLL, case: Case, outer: int, rounds: int) -> list[str]:
    """A row of the table."""
    task, key = make_task(case.name), jr.key(0)
    policy, group, inner = (
        make_policy(shared_policy(task), task, key=key),
        outer // GROUPS,
        CHUNK * case.chunks,
    )
    runs = jax.vmap(lambda key: simulate(task, policy, key=key))(jr.split(key, group))
    thetas = parameters(task, CHUNK)
    columns, out = np.ascontiguousarray(thetas.T, np.float32), np.empty((group, CHUNK), np.float32)
    kernel = c_kernel(library, case.name, runs)

    def in_c() -> None:
        for _ in range(GROUPS * case.chunks):
            kernel(columns, out)

    c, ours = best_of(
        rounds, in_c, lambda: eig_bounds(task, policy, outer=outer, inner=inner, key=key).lower
    )
    agree(
        case.name,
        np.asarray(jax.vmap(lambda y, xi: log_likelihoods(task, thetas, y, xi))(runs.ys, runs.xis)),
        out,
    )
    giga, ratio = outer * inner * task.horizon / 1e9, c / ours
    verdict = "met" if ratio >= case.goal else "MISSED"
    sizes = [f"{outer:,}", f"{inner:,}", f"{giga / c:.2f}", f"{giga / ours:.2f}"]
    return [case.name, *sizes, f"{ratio:.2f}", f"{case.goal} {verdict}"]


def main() -> None:
    quick = arguments(__doc__).parse_args().quick
    print(f"bounds end to end; scorebed {scorebed.__version__}, jax {jax.__version__}")
    with tempfile.TemporaryDirectory() as folder:
        library = compile_kernels(folder)
        cases = (
            [case._replace(chunks=1) for case in CASES if case.name == "pendulum"]
            if quick
            else CASES
        )
        rows = [
            compare(library, case, *((GROUPS, 1) if quick else (OUTER, ROUNDS))) for case in cases
        ]
    table(("task", "N", "M", "C, 10⁹ NLE/s", "ours, 10⁹ NLE/s", "ratio", "goal"), rows)


if __name__ == "__main__":
    main()
