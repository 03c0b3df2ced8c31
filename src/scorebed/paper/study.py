"""What a re-run of the paper is asked to be: scale, seed, policies, repeats, and its folders."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scorebed.errors import UnknownNameError
from scorebed.paper.data import read

POLICIES: tuple[str, ...] = tuple(read("items")["policies"])
USUAL_POLICIES = POLICIES[0]
USUAL_REPEATS = 4


@dataclasses.dataclass(frozen=True, kw_only=True)
class Study:
    """One re-run: units of it share these settings, and their records are kept in one folder."""

    out: Path
    """The folder of runs and pages."""
    scale: float = 1.0
    """S, the share of the paper's budget of likelihood evaluations."""
    policies: str = USUAL_POLICIES
    """Whose policies: a name of `POLICIES`."""
    repeats: int = USUAL_REPEATS
    """Times that every choice of a policy is repeated."""
    seed: int = 0
    """The seed of every run."""
    overrides: Sequence[str] = ()
    """Further settings of all runs, as key=value."""
    records: Path | None = None
    """The folder of records; `records` below `out` if None."""

    def __post_init__(self) -> None:
        if self.policies not in POLICIES:
            raise UnknownNameError("value of --policies", self.policies, POLICIES)

    @property
    def runs_folder(self) -> Path:
        """Where the run folders are."""
        return self.out / "runs"

    @property
    def records_folder(self) -> Path:
        """Where the records are."""
        return self.out / "records" if self.records is None else self.records

    @property
    def suffix(self) -> str:
        """Of the names of units, so that records of both kinds of policies can lie side by side."""
        return str(self._choice.get("suffix", ""))

    @property
    def other_policies(self) -> bool:
        """Whether the policies are not the paper's, so that a row has to name its own."""
        return self.policies != USUAL_POLICIES

    @property
    def policies_in_words(self) -> str:
        """Whose policies, for a heading."""
        return str(self._choice["words"])

    def settings(self) -> dict[str, Any]:
        """What a record must agree with."""
        return {
            "scale": self.scale,
            "policies": self.policies,
            "repeats": self.repeats,
            "seed": self.seed,
            "set": list(self.overrides),
        }

    def stem(self, item: str) -> str:
        """The name of an item's files."""
        return f"{item}{self.suffix}"

    def command(self, item: str) -> str:
        """The command line that gives an item of this study, but for its folders."""
        words = [f"scorebed paper {item} --scale {self.scale:g}"]
        if self.other_policies:
            words.append(f"--policies {self.policies}")
        if self.repeats != USUAL_REPEATS:
            words.append(f"--repeats {self.repeats}")
        if self.seed:
            words.append(f"--seed {self.seed}")
        words += [f"--set {each}" for each in self.overrides]
        return " ".join(words)

    @property
    def _choice(self) -> dict[str, Any]:
        return dict(read("items")["policies"][self.policies])
