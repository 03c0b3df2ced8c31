"""Start-up in processor time: imports, `--help`, a tiny run with nothing compiled, and again.

Each runs in a process of its own, and the best of several counts: seconds of all cores, which
depend less on what else the machine does. The run is `train linear-gaussian` with a few steps, so
that nearly all of its time is imports and compilation: first with an empty compilation cache, then
with the cache that the first run filled.

    make bench, or: python benchmarks/startup.py            about a minute
    python benchmarks/startup.py --quick                    does it run?
"""

import os
import pathlib
import resource
import subprocess
import sys
import tempfile

import scorebed
import jax
from measuring import arguments, table

ROUNDS = 5
TINY = [
    "score.steps=10",
    "score.batch=8",
    "score.width=8",
    "score.particles=2",
    "score.cloud=2",
    "policy_training.steps=10",
    "policy_training.batch=8",
    "policy_training.monitor_every=10",
    "policy_training.monitor_inner=50",
    "evaluation.outer=32",
    "evaluation.inner=200",
    "evaluation.select_outer=16",
    "evaluation.select_inner=50",
]
GOAL_HELP = 0.5
GOAL_IMPORT = 2.0  # times `import jax`
GOAL_WARM = 5.0


def took(command: list[str], environment: dict[str, str]) -> float:
    begun = spent()
    subprocess.run(command, env=os.environ | environment, check=True, capture_output=True)
    return spent() - begun


def spent() -> float:
    """Processor time of all processes that were waited for."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def against(found: float, goal: float) -> str:
    return f"goal {goal} {'met' if found <= goal else 'MISSED'}"


def best(rounds: int, *command: str) -> float:
    return min(took([sys.executable, *command], {}) for _ in range(rounds))


def twice(folder: pathlib.Path) -> tuple[float, float]:
    """Seconds of a tiny run with an empty cache, and of the same run again."""
    program = "from scorebed.cli import main; main()"
    settings = [part for value in TINY for part in ("--set", value)]
    cache = {
        "XDG_CACHE_HOME": str(folder / "cache"),
        "JAX_COMPILATION_CACHE_DIR": str(folder / "cache" / "compiled"),
    }

    def run(name: str) -> float:
        command = [
            "train",
            "linear-gaussian",
            "--preset",
            "quick",
            *settings,
            "--out",
            str(folder / name),
        ]
        return took([sys.executable, "-c", program, *command], cache)

    return run("cold"), run("warm")


def main() -> None:
    quick = arguments(__doc__).parse_args().quick
    rounds = 1 if quick else ROUNDS
    print(
        f"processes; scorebed {scorebed.__version__}, jax {jax.__version__}, python "
        f"{sys.version.split()[0]}"
    )
    nothing = best(rounds, "-c", "pass")
    of_jax, of_help = (
        best(rounds, "-c", "import jax"),
        best(rounds, "-c", "from scorebed.cli import main; main()", "--help"),
    )
    ours = best(rounds, "-c", "import scorebed; scorebed.eig_bounds")
    rows = [
        ["python, and nothing else", f"{nothing:.2f}", ""],
        ["`import jax`", f"{of_jax:.2f}", ""],
        [
            "`import scorebed`, with all it needs",
            f"{ours:.2f}",
            f"{ours / of_jax:.2f} of `import jax`, {against(ours / of_jax, GOAL_IMPORT)}",
        ],
        [
            "`scorebed --help`",
            f"{of_help:.2f}",
            against(of_help, GOAL_HELP),
        ],
    ]
    if not quick:
        with tempfile.TemporaryDirectory() as folder:
            cold, warm = twice(pathlib.Path(folder))
        rows += [["a tiny run, nothing compiled before", f"{cold:.1f}", ""]]
        rows += [["the same again", f"{warm:.1f}", against(warm, GOAL_WARM)]]
    table(("what", "s of processor time", "goal"), rows)


if __name__ == "__main__":
    main()
