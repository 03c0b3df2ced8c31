"""A sweep in Python: `sb.sweep(score_run, space)`."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scorebed.runs.load import Run, load
from scorebed.runs.user_parts import BUILT_IN
from scorebed.sweeps.creation import create_study
from scorebed.sweeps.searches import DEFAULT_SEARCH
from scorebed.sweeps.study import RESULT, SweepStudy
from scorebed.sweeps.winner import Winner, judge_winner
from scorebed.sweeps.worker import Worker, finished


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweepResult:
    """What a sweep has found, as `sweep` gives it.

    Attributes:
        study: the study; its folder is `study.folder`.
        winner: the best trial, with the bound that chose it and one on draws that chose nothing.
        run: the run of the winner.
        trials: what every finished trial came to, in order.

    Example:
        >>> result.winner.run.endswith(result.run.path.name)
        True
    """

    study: SweepStudy
    winner: Winner
    run: Run
    trials: Sequence[Mapping[str, Any]]


def sweep(
    score_run: Path | str,
    space: Mapping[str, Any] | None = None,
    *,
    folder: Path | str,
    trials: int | None = None,
    sampler: str = DEFAULT_SEARCH,
    halvings: int = 0,
    seed: int = 0,
    storage: str = "",
) -> SweepResult:
    """Search policies on the score of a run, here and now; `scorebed sweep work FOLDER` in other
    processes helps.

    Arguments:
        score_run: the folder of a run with a trained score.
        space: what is searched, as the values of a space file; the task's own space if None.
        folder: the folder of the new study.
        trials: the number of trials; 30, or all points of a grid.
        sampler: how settings are suggested: `tpe`, `cmaes`, `random` or `grid`.
        halvings: times that the worse half of the trials is stopped on the way.
        seed: the seed of the study.
        storage: the URL of a database for the trials; a file in the folder if empty.

    Returns:
        The winner, its run, and all finished trials.

    Raises:
        InvalidValueError: if the space does not fit the configuration, or no trial was finished.
        UnknownNameError: if a key or a sampler has no such name.
        RunFolderError: if the folder exists, or `score_run` is not a run.

    Example:
        >>> rates = {"learning_rate": {"low": 1e-3, "high": 1e-1, "log": True}}
        >>> sizes = {"steps": 4, "batch": 4, "monitor_every": 2, "monitor_inner": 4}
        >>> result = sb.sweep(
        ...     "runs/linear-gaussian-score-1",
        ...     {
        ...         "policy": "static",
        ...         "policy_training": rates | sizes,
        ...         "evaluation": {"outer": 4, "inner": 8},
        ...     },
        ...     folder="runs/sweep",
        ...     trials=1,
        ... )
        >>> result.winner.trial, len(result.trials)
        (0, 1)
    """
    study = create_study(
        Path(folder),
        Path(score_run),
        space=space,
        trials=trials,
        sampler=sampler,
        halvings=halvings,
        seed=seed,
        storage=storage,
        parts=BUILT_IN,
    )
    Worker(study).work()
    winner = judge_winner(study)
    return SweepResult(
        study=study,
        winner=winner,
        run=load(winner.run),
        trials=[trial.user_attrs[RESULT] for trial in finished(study.load())],
    )
