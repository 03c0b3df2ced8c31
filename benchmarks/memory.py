"""The most memory that an evaluation takes: bounds of location finding, at the paper's size of N =
2,048 and M = 5,000,000.

Each size runs in a process of its own, and the figure is the operating system's peak resident set.
Groups of trajectories are evaluated one after the other, so all of them need no more memory than
one; at a smaller M the table shows this by evaluating all groups. At the paper's M only the first
group, 128 trajectories, is evaluated, which takes some twenty seconds.

    make bench, or: python benchmarks/memory.py            about two minutes
    python benchmarks/memory.py --quick                    does it run?
"""

import subprocess
import sys

import scorebed
from measuring import arguments, table

# Without the bounds it is what Python, JAX and the policy take.
PROGRAM = """
import resource, sys
import scorebed
import jax, jax.random as jr
from scorebed.bounds.contrastive import eig_bounds
from scorebed.policies import make_policy
from scorebed.tasks import make_task

class Enough(Exception):
    pass

def end(done, _):
    if done == groups:
        raise Enough

groups, outer, inner = map(int, sys.argv[1:])
task, key = make_task("location-finding"), jr.key(0)
policy = make_policy("dad", task, key=key)
try:
    if groups:
        eig_bounds(task, policy, outer=outer, inner=inner, on_group=end, key=key)
except Enough:
    pass
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
SIZES = (
    (0, 2048, 1),
    (1, 2048, 50_000),
    (16, 2048, 50_000),
    (1, 2048, 500_000),
    (1, 2048, 5_000_000),
)
QUICK = ((0, 32, 1), (2, 32, 10))


def peak(groups: int, outer: int, inner: int) -> float:
    """Mebibytes."""
    command = [sys.executable, "-c", PROGRAM, *map(str, (groups, outer, inner))]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout) / 1024


def main() -> None:
    quick = arguments(__doc__).parse_args().quick
    print(f"memory of an evaluation; scorebed {scorebed.__version__}")
    rows = []
    for groups, outer, inner in QUICK if quick else SIZES:
        found = f"{peak(groups, outer, inner):,.0f}"
        rows.append(
            [f"{groups} of 16", f"{outer:,}", f"{inner:,}", found]
            if groups
            else ["none", "", "", found]
        )
    table(("groups", "N", "M", "peak, MiB"), rows)


if __name__ == "__main__":
    main()
