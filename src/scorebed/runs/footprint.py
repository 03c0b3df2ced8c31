"""The memory that the training of a run takes, before it begins.

Each stage is one program after the other, so that a run needs the memory of its largest; bounds are
evaluated in chunks that are smaller. A CPU trains several policies in turn, an accelerator at once
(`training/fit.py`) where that fits its memory; a run is refused only if one at a time does not.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import jax

from scorebed.errors import InvalidValueError
from scorebed.methods.programs import training_programs
from scorebed.methods.reading import own_table
from scorebed.runs.config import RunConfig
from scorebed.runs.execution import job_for
from scorebed.tasks.base import Task
from scorebed.training.fit import at_once, device_memory
from scorebed.training.liveness import Footprint
from scorebed.training.programs import footprint

# Shorter runs are not looked at: it takes seconds, and batches that do not fit would spend more.
LONG_RUN = 1_000_000_000


class StepMemory(NamedTuple):
    """What the programs of a run's training take, by their names: those of what is learned upfront
    first, if there is any.
    """

    programs: Mapping[str, Footprint]
    upfront: bool

    @property
    def largest(self) -> str:
        """The name of the program that takes the most."""
        return max(self.programs, key=lambda name: self.programs[name].total)

    @property
    def total(self) -> int:
        """Bytes of the largest; 0 for a run that trains nothing."""
        return max((found.total for found in self.programs.values()), default=0)


def step_memory(config: RunConfig, task: Task, *, together: bool | None = None) -> StepMemory:
    """The memory of a run's training, from shapes alone. `together` is how several policies are
    trained, at once or in turn; if left out, as this machine would.
    """
    method, job = config.trained_by, job_for(config, task)
    how = at_once() if together is None else together
    found = {each.name: footprint(each) for each in training_programs(method, job, together=how)}
    return StepMemory(found, upfront=bool(method.upfront_stem) and not job.taken_over)


def require_memory(config: RunConfig, task: Task, *, devices: int = 1) -> None:
    """Refuse a long run whose batches cannot fit the memory of the devices that share them out,
    with batches that would.
    """
    method, job = config.trained_by, job_for(config, task)
    if method.policy_settings is None or method.nle(job) < LONG_RUN:
        return
    found, limit = step_memory(config, task, together=False), memory_limit()
    if limit is None or found.total == 0:
        return
    most = found.programs[found.largest]
    fixed = most.arguments + most.results
    needed = fixed + most.temporary // (devices if at_once() else 1)
    if needed <= limit:
        return
    key, batch = _batch(config, found)
    share = max(0, limit - fixed) / max(1, needed - fixed)
    raise InvalidValueError(
        key,
        got=f"{batch:,}, with which a step of {found.largest} takes {gibibytes(needed)}",
        expected=f"a batch that fits {gibibytes(limit)} of memory",
        fix=f"set it to {max(1, _power_of_two(batch * share)):,}, or take a larger device"
        + (" or more of them by --devices." if at_once() else "."),
    )


def memory_limit() -> int | None:
    """Bytes of memory of a device: of the machine for a CPU; None where nobody says."""
    if jax.default_backend() != "cpu":
        return device_memory()
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    group = Path("/sys/fs/cgroup/memory.max")  # a container may have less
    if group.exists() and (text := group.read_text().strip()).isdigit():
        found.append(int(text))
    return min(found)


def gibibytes(size: int) -> str:
    """A size in words."""
    return f"{size / 2**30:.2g} GiB" if size < 10 * 2**30 else f"{size / 2**30:,.0f} GiB"


def _batch(config: RunConfig, found: StepMemory) -> tuple[str, int]:
    """The setting that decides the largest program, and its value."""
    method, training = config.trained_by, config.trained_by.policy_settings
    assert training is not None  # `require_memory` asked
    first = next(iter(found.programs))
    if found.upfront and found.largest == first:
        for table, values in method.upfront_values(own_table(config.method)).items():
            if isinstance(values, Mapping) and "batch" in values:
                return f"{table}.batch", int(values["batch"])
    return "policy_training.batch", training.batch


def _power_of_two(most: float) -> int:
    return 1 << max(0, int(most).bit_length() - 1)
