"""How well `--minutes` is kept: the seconds of training of runs that were given a time.

The number of steps that fit is found by timing a few of them (`runs/spending.py`), so a busy
machine, or steps that get slower, make a run miss its time. The bounds at the end do not count.

    make bench, or: python benchmarks/minutes.py            some minutes
    python benchmarks/minutes.py --quick                    does it run?
"""

import json
import subprocess
import sys
import tempfile

import scorebed
from measuring import arguments, table

TOLERANCE = 2.0  # a run that takes this many times its time, or this part of it, is a fault
CASES = (("linear-gaussian", "pce", 0.5), ("pendulum", "score", 2.0))
SMALL = (
    "evaluation.outer=8",
    "evaluation.inner=50",
    "evaluation.references=false",
    "policy_training.monitor_inner=10",
)


def training_seconds(task: str, method: str, minutes: float) -> float:
    """Of a run with that time, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["train", task, "--method", method, "--minutes", str(minutes), "--json"]
        settings = [word for setting in SMALL for word in ("--set", setting)]
        program = [sys.executable, "-c", "from scorebed.cli import main; main()"]
        done = subprocess.run(
            [*program, *words, *settings, "--out", f"{folder}/run"],
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
    spent = json.loads(done.stdout)["seconds"]
    return sum(s for stage, s in spent.items() if not stage.startswith(("bounds", "total")))


def main() -> None:
    quick = arguments(__doc__).parse_args().quick
    print(f"training for a given time; scorebed {scorebed.__version__}")
    cases = [(task, method, 0.2) for task, method, _ in CASES[:1]] if quick else CASES
    rows, missed = [], False
    for task, method, minutes in cases:
        taken = training_seconds(task, method, minutes) / (60 * minutes)
        missed |= not 1 / TOLERANCE < taken < TOLERANCE
        rows.append([f"{task}, {method}", f"{60 * minutes:.0f}", f"{taken:.2f}"])
    table(("run", "s given", "of it taken"), rows)
    if missed and not quick:
        sys.exit(f"a run took more or less than its time by a factor of {TOLERANCE:g}")


if __name__ == "__main__":
    main()
