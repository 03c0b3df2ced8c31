"""What every training step of the preset `paper` takes in memory, lowered for accelerators that
need not be there.

Every method, number of policies and task of the paper. Nothing of the paper's sizes is allocated:
programs are traced by their shapes, lowered by `jax.export` for CUDA and TPU, and walked for the
most memory they take at once (scorebed/training/liveness.py). "One" is one policy at a time, as a
CPU trains them; "all" is all policies of a repeat that share a score at once, as an accelerator
does, by P times what belongs to each. NLE are those of one repeat, of IO-SMC² at most.

    make bench, or: python benchmarks/accelerator.py       about fifteen minutes, all of it tracing
    python benchmarks/accelerator.py --task pendulum        one task
    python benchmarks/accelerator.py --quick                does it run?
"""

from collections.abc import Iterator
from typing import NamedTuple

import scorebed
import equinox as eqx
import jax
from jax import export
from measuring import arguments, table
from scorebed.methods.programs import training_programs
from scorebed.presets.reader import preset_values
from scorebed.runs.config import RunConfig, make_config
from scorebed.runs.execution import job_for
from scorebed.tasks import make_task
from scorebed.training.liveness import Footprint
from scorebed.training.programs import footprint
from scorebed.training.programs import TrainingProgram, is_shape

PLATFORMS = ("cuda", "tpu")
EVERYWHERE = ("score", "varmarg", "varpost", "jointvarpost", "pce")
IID, DYNAMICAL = (1, 5), (1, 50)
# Task, numbers of policies, methods besides those that every task has.
TASKS = {
    "location-finding": (IID, ("mlmc",)),
    "location-finding-3d": (IID, ()),
    "gravimetry": (IID, ()),
    "pendulum": (DYNAMICAL, ("iosmc",)),
    "cart-pole": (DYNAMICAL, ("iosmc",)),
    "double-link": (DYNAMICAL, ("iosmc",)),
}


class Row(NamedTuple):
    """A run of the paper: its words, and how to ask for it."""

    task: str
    method: str
    policies: int
    overrides: tuple[str, ...] = ()
    remark: str = ""

    @property
    def config(self) -> RunConfig:
        task = make_task(self.task)
        chosen = {"method": self.method, "policies": self.policies}
        values = preset_values("paper", self.task, task, **chosen)
        return make_config(values, [*self.overrides, "repeats=1"])


def rows(task: str) -> Iterator[Row]:
    counts, others = TASKS[task]
    for method in EVERYWHERE:
        for count in counts:
            yield Row(task, method, count)
    if counts is DYNAMICAL:
        yield Row(task, "score", 3)
    elif task != "gravimetry":
        yield Row(task, "pce", 1, ("pce.inner=199",), "M = 199")
    for method in others:
        yield Row(task, method, 1)


def lowered(program: TrainingProgram) -> int:
    """Bytes of the program for all platforms."""
    given, fixed = eqx.partition(program.shapes, is_shape)

    def function(given: object) -> object:
        return eqx.filter(program.function(*eqx.combine(given, fixed)), is_shape)

    made = export.export(jax.jit(function), platforms=PLATFORMS)(given)
    assert set(made.platforms) == set(PLATFORMS)
    return len(made.mlir_module_serialized)


def all_at_once(one: Footprint, count: int) -> int:
    """Every policy has its own state and trajectories; a score is shared, and small."""
    return count * one.total


def gib(size: int) -> str:
    return f"{size / 2**30:.2f}"


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--task", choices=TASKS, help="one task alone")
    given = parser.parse_args()
    names = ["pendulum"] if given.quick else [given.task] if given.task else list(TASKS)
    print(f"steps of the preset paper; scorebed {scorebed.__version__}, jax {jax.__version__}")
    known: dict[tuple[str, ...], tuple[Footprint, int]] = {}
    for name in names:
        found = []
        for row in [Row("pendulum", "iosmc", 1)] if given.quick else rows(name):
            config = row.config
            task = make_task(row.task)
            job, method = job_for(config, task), config.trained_by
            count = max(n for _, n in job.groups(method.parts(job)))
            nle = method.nle(job)
            cells = []
            for program in training_programs(method, job, together=False):
                shapes = repr(jax.tree.leaves(program.shapes))
                contrasts = str(getattr(method, "inner", ""))
                key = (row.task, row.method, program.name, shapes, contrasts)
                if key not in known:
                    known[key] = footprint(program), lowered(program)
                cells.append(known[key][0])
            largest = max(cells[1:] or cells, key=lambda each: each.total)
            upfront = gib(cells[0].total) if method.upfront_stem else ""
            words = f"{row.method}, P = {row.policies}" + (row.remark and f", {row.remark}")
            at_once = gib(all_at_once(largest, count))
            found.append([words, f"{nle:,}", upfront, gib(largest.total), at_once])
        print(f"\n{name}")
        table(("run", "NLE of a repeat", "stage 1, GiB", "one policy, GiB", "all, GiB"), found)


if __name__ == "__main__":
    main()
