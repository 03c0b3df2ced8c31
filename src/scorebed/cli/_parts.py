"""The user's parts of a run, FILE.py:NAME: a run executes no file that is not named again."""

import dataclasses
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

if TYPE_CHECKING:
    from scorebed.runs.user_parts import PartKind, UserPart, UserParts


@Parameter(name="*")
@dataclasses.dataclass(frozen=True)
class RunParts:
    """Options of every command that reads a run."""

    task: Annotated[
        str | None, Parameter(name="--task", help="FILE.py:NAME, if the run's task is yours.")
    ] = None
    method: Annotated[
        str | None, Parameter(name="--method", help="FILE.py:NAME, if the run's method is yours.")
    ] = None
    policy: Annotated[
        str | None, Parameter(name="--policy", help="FILE.py:NAME, if the run's policy is yours.")
    ] = None
    score_kind: Annotated[
        str | None,
        Parameter(name="--score-kind", help="FILE.py:NAME, if the run's kind of score is yours."),
    ] = None
    sampler: Annotated[
        str | None, Parameter(name="--sampler", help="FILE.py:NAME, if the run's sampler is yours.")
    ] = None

    def read(self) -> "UserParts":
        """Execute the files that are named, and no others."""
        from scorebed.runs.user_parts import METHOD, POLICY, SAMPLER, SCORE_KIND, UserParts
        from scorebed.runs.user_task import read_task

        return UserParts(
            task=None if self.task is None else read_task(self.task),
            method=part(METHOD, self.method),
            policy=part(POLICY, self.policy),
            score_kind=part(SCORE_KIND, self.score_kind),
            sampler=part(SAMPLER, self.sampler),
        )

    def options(self) -> dict[str, str]:
        """The options that were given."""
        given = {
            f"--{name.replace('_', '-')}": value for name, value in dataclasses.asdict(self).items()
        }
        return {name: value for name, value in given.items() if value}

    def __str__(self) -> str:
        """The options again, as they are written."""
        return "".join(f" {name} {value}" for name, value in self.options().items())


def part(kind: "PartKind", name: str | None) -> "UserPart | None":
    """What a name means if it is that of a file; None for what is built in, or not given."""
    from scorebed.runs.user_parts import is_from_file, read_part

    return read_part(kind, name) if name is not None and is_from_file(name) else None
