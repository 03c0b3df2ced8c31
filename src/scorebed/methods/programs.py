"""The programs that a method's training compiles for a job: what is learned upfront, and the first
stage of policies; other scores and repeats run the same ones.
"""

from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx

from scorebed.methods.base import Job, Method
from scorebed.training.programs import TrainingProgram, is_shape, shapes_of
from scorebed.training.stage import Stage


def training_programs(method: Method, job: Job, *, together: bool) -> Iterator[TrainingProgram]:
    """Every program, by shapes alone. `together` is how an accelerator trains several policies, at
    once; a CPU trains them in turn.
    """
    upfront = None if job.taken_over else method.upfront(job, 0)
    if upfront is not None:
        yield from _programs(lambda _: method.upfront(job, 0), None, together=together)
    learned = shapes_of(method.upfront_like(job)) if method.upfront_stem else None
    name, count = max(job.groups(method.parts(job)), key=lambda group: group[1])
    yield from _programs(
        lambda found: method.train(job, found, name, count), learned, together=together
    )


def _programs(
    stage_for: Callable[[Any], Stage | None], learned: Any, *, together: bool
) -> Iterator[TrainingProgram]:
    """Those of a stage. What it was given enters them as an argument, not as a constant."""
    given, fixed = eqx.partition(learned, is_shape)

    def stage(given: Any) -> Stage:
        found = stage_for(eqx.combine(given, fixed))
        assert found is not None  # for the type checker
        return found

    if stage_for(learned) is None:
        return
    fresh = eqx.filter_eval_shape(lambda given: stage(given).untrained(), given)
    arrays, rest = eqx.partition(fresh, is_shape)

    for number, program in enumerate(stage(given).programs(fresh, together=together)):

        def function(given: Any, arrays: Any, *others: Any, number: int = number) -> Any:
            one = stage(given).programs(eqx.combine(arrays, rest), together=together)[number]
            return one.function(*others)

        yield TrainingProgram(program.name, function, (given, arrays, *program.shapes))
