"""Methods side by side on one task: each trained with the same budget of likelihood evaluations, or
for the same time.

Every method has a run folder of its own below one folder, so that a comparison that was stopped
goes on where it was, and any of its runs can be looked into like another."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

from scorebed.bounds.contrastive import SATURATED
from scorebed.errors import UnknownNameError, require
from scorebed.policies import paper_policy
from scorebed.presets.values import preset_values
from scorebed.runs.budget import groups
from scorebed.runs.config import METHODS, make_config
from scorebed.runs.durable import make_folder
from scorebed.runs.folder import RunFolder
from scorebed.runs.methods import UNTRAINED, UPFRONT
from scorebed.runs.stage import Progress
from scorebed.runs.terms import Terms
from scorebed.runs.training import Execution
from scorebed.tasks import make_task
from scorebed.tasks.base import IID, Markov, Task

COLUMNS = ("method", "lower bound", "upper bound", "NLE", "seconds")


class Moment(NamedTuple):
    """What a method had spent in training, and the best lower bound by then."""

    nle: float
    seconds: float
    lower: float


class Entry(NamedTuple):
    """One method: its run, and how its bound rose with what it had spent."""

    method: str
    record: Mapping[str, Any]
    curve: Sequence[Moment]

    @property
    def seconds(self) -> float:
        """Of training; bounds are not counted."""
        stages = (
            s
            for stage, s in self.record["seconds"].items()
            if stage != "total" and not _is_bound(stage)
        )
        return float(sum(stages))

    @property
    def saturated(self) -> bool:
        """Whether its trajectories press against the ceiling: the lower bound then says little but
        log(M+1).
        """
        return float(self.record["saturated"]) > SATURATED

    def row(self) -> list[str]:
        """The cells of `COLUMNS`."""
        lower, upper = (
            f"{self.record[side]:.3f} ± {self.record[f'{side}_se']:.3f}"
            for side in ("lower", "upper")
        )
        bounds = [lower + (" *" if self.saturated else ""), upper]
        return [self.method, *bounds, f"{self.record['nle']:,}", f"{self.seconds:.0f}"]


def comparable(task: Task) -> tuple[str, ...]:
    """The methods for a task: IO-SMC² is for policies with a density, the myopic designer for
    states that are data.
    """
    refused = {"iosmc": paper_policy(task) != "gru", "myopic": not isinstance(task, IID | Markov)}
    return tuple(method for method in METHODS if not refused.get(method, False))


def chosen(names: str, task: Task) -> tuple[str, ...]:
    """The methods that a comma-separated list names, or `all` of those for the task."""
    possible = comparable(task)
    if names == "all":
        return possible
    found = tuple(name.strip() for name in names.split(","))
    for name in found:
        if name not in possible:
            raise UnknownNameError("method for this task", name, possible)
    return found


def compare(
    task_name: str,
    methods: Sequence[str],
    terms: Terms,
    out: Path,
    *,
    preset: str = "quick",
    overrides: Sequence[str] = (),
    progress: Progress,
) -> list[Entry]:
    """Train every method below `out`, or go on with it there, and give them with the best first."""
    task = make_task(task_name)
    make_folder(out)
    entries = []
    for method in methods:
        path = out / method
        progress.begin(method, 0, 0)
        with _run(path, task_name, task, method, terms, preset, overrides) as folder:
            progress.end(f"{terms}, in {path}")
            record = Execution(folder, progress=progress).run()
            entries.append(Entry(method, record, _curve(folder, record)))
        # Nothing that one method compiled serves another, and it would be held to the end.
        jax.clear_caches()
    return sorted(entries, key=lambda entry: -float(entry.record["lower"]))


def _run(
    path: Path,
    name: str,
    task: Task,
    method: str,
    terms: Terms,
    preset: str,
    overrides: Sequence[str],
) -> RunFolder:
    """A run to begin or to go on with."""
    if not (path / "config.toml").is_file():
        config = make_config(
            preset_values(preset, name, task, method=method, policy=_policy(method, task)),
            ["evaluation.references=false", *overrides],
        )
        return RunFolder.create(path, terms.apply(config, task))
    folder = RunFolder.open(path)
    begun = folder.config()
    require(
        (begun.task, begun.budget) == (name, terms.budget or 0),
        f"the comparison in {path.parent}",
        got=f"a run of {begun.task} with a budget of {begun.budget:,}",
        expected=f"{name} with {terms}",
        fix="give another folder by --out, or the same task and terms.",
    )
    return folder.own()


def _policy(method: str, task: Task) -> str | None:
    """The same for all that train one: the paper's."""
    return None if method in ("static", *UNTRAINED) else paper_policy(task)


def _curve(folder: RunFolder, record: Mapping[str, Any]) -> list[Moment]:
    """For the first repeat: what was spent upfront, and on its policies until then."""
    config = folder.config()
    if config.method in UNTRAINED:
        return []
    spent = record["nle_stages"]
    learned = UPFRONT.get(config.method)
    nle, seconds = (
        sum(n for stage, n in of.items() if learned and stage.startswith(f"{learned.stem}-"))
        for of in (spent, record["seconds"])
    )
    metrics = list(folder.read_metrics())
    last = {str(m["stage"]): int(m["step"]) for m in metrics}  # type: ignore[call-overload]
    stage = groups(config)[0][0]
    best, curve = float("-inf"), []
    for m in metrics:
        if m["stage"] == stage and "lower" in m:
            best = max(best, *(lower for lower in m["lower"] if lower is not None))  # type: ignore[union-attr]
            share = int(m["step"]) / last[stage]  # type: ignore[call-overload]
            curve.append(Moment(nle + spent[stage] * share, seconds + float(m["seconds"]), best))  # type: ignore[arg-type]
    return curve


def table(entries: Sequence[Entry]) -> str:
    """The comparison as a Markdown table."""
    rows = [
        list(COLUMNS),
        ["---", *["---:"] * (len(COLUMNS) - 1)],
        *(entry.row() for entry in entries),
    ]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows) + "".join(
        f"\n{line}\n" for line in remarks(entries)
    )


def remarks(entries: Sequence[Entry]) -> list[str]:
    """What the numbers do not say."""
    pressed = [entry for entry in entries if entry.saturated]
    if not pressed:
        return []
    ceiling = float(pressed[0].record["ceiling"])
    return [
        f"* pressed against the ceiling log(M+1) = {ceiling:.2f} of these bounds: the EIG may be "
        f"far above the lower one."
    ]


def _is_bound(stage: str) -> bool:
    return stage.startswith(("bounds", "choose"))
