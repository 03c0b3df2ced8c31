"""The user's parts of a run, FILE.py:NAME: a run executes no file that is not named again."""

import dataclasses
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

if TYPE_CHECKING:
    from scorebed.runs.user_parts import PartKind, PartNames, UserPart, UserParts


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
        from scorebed.errors import require
        from scorebed.runs.user_parts import is_from_file, read_parts

        for field, name in dataclasses.asdict(self).items():
            require(
                name is None or is_from_file(name),
                f"--{field.replace('_', '-')}",
                got=f"'{name}'",
                expected="FILE.py:NAME",
                fix="leave it out: a run knows what is built in.",
            )
        return read_parts(self.names())

    def names(self) -> "PartNames":
        """Their names, for another process."""
        from scorebed.runs.user_parts import PartNames

        return PartNames(self.task, self.method, self.policy, self.score_kind, self.sampler)

    def options(self) -> dict[str, str]:
        """The options that were given."""
        given = {
            f"--{name.replace('_', '-')}": value for name, value in dataclasses.asdict(self).items()
        }
        return {name: value for name, value in given.items() if value}

    def words(self) -> list[str]:
        """The options again, as words of a command line."""
        return [word for option in self.options().items() for word in option]

    def __str__(self) -> str:
        """The options again, as they are written."""
        return "".join(f" {word}" for word in self.words())


def part(kind: "PartKind", name: str | None) -> "UserPart | None":
    """What a name means if it is that of a file; None for what is built in, or not given."""
    from scorebed.runs.user_parts import is_from_file, read_part

    return read_part(kind, name) if name is not None and is_from_file(name) else None
