"""How settings are suggested: Optuna's samplers, seeded by the study's seed and a trial's number.

A sampler is made for each trial. `random` and `grid` look at nothing else, so that a trial is the
same whoever runs it, and when. `tpe` and `cmaes` also look at the trials that are finished.
"""

import hashlib
import importlib.util
import warnings
from collections.abc import Callable
from typing import Any, TypeAlias

import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.study import Study as OptunaStudy
from optuna.trial import FrozenTrial

from scorebed.errors import InvalidValueError, UnknownNameError, require
from scorebed.sweeps.space import SearchSpace

Search: TypeAlias = Callable[[SearchSpace, int, int], BaseSampler]


def seed_of(seed: int, number: int, *names: str) -> int:
    """32 bits that follow from a study's seed, a trial's number, and names."""
    text = "/".join(["sweep", str(seed), str(number), *names])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")


class _ByNumber(BaseSampler):
    """Suggests by a trial's number and the setting's name alone."""

    def __init__(self, suggest: Callable[[FrozenTrial, str, BaseDistribution], Any]):
        self._suggest = suggest

    def infer_relative_search_space(
        self, study: OptunaStudy, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        del study, trial
        return {}

    def sample_relative(
        self, study: OptunaStudy, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        del study, trial, search_space
        return {}

    def sample_independent(
        self,
        study: OptunaStudy,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        del study
        return self._suggest(trial, param_name, param_distribution)


def tpe(space: SearchSpace, seed: int, number: int) -> BaseSampler:
    """Optuna's tree-structured Parzen estimator; trials that are running count as bad ones."""
    del space
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        return optuna.samplers.TPESampler(seed=seed_of(seed, number), constant_liar=True)


def cmaes(space: SearchSpace, seed: int, number: int) -> BaseSampler:
    """Optuna's CMA-ES over the numbers; choices are drawn at random."""
    del space
    if importlib.util.find_spec("cmaes") is None:
        raise InvalidValueError(
            "the sampler cmaes",
            got="no package 'cmaes'",
            expected="it to be installed",
            fix="pip install cmaes, or choose another by --sampler.",
        )
    return optuna.samplers.CmaEsSampler(seed=seed_of(seed, number), warn_independent_sampling=False)


def random(space: SearchSpace, seed: int, number: int) -> BaseSampler:
    """Independent draws."""
    del space, number

    def suggest(trial: FrozenTrial, name: str, distribution: BaseDistribution) -> Any:
        draws = optuna.samplers.RandomSampler(seed=seed_of(seed, trial.number, name))
        return draws.sample_independent(None, trial, name, distribution)  # type: ignore[arg-type]

    return _ByNumber(suggest)


def grid(space: SearchSpace, seed: int, number: int) -> BaseSampler:
    """Every point of the grid, in order."""
    del seed, number

    def suggest(trial: FrozenTrial, name: str, distribution: BaseDistribution) -> Any:
        del distribution
        return space.grid_point(trial.number)[name]

    return _ByNumber(suggest)


SEARCHES: dict[str, Search] = {search.__name__: search for search in (tpe, cmaes, random, grid)}
DEFAULT_SEARCH = tpe.__name__


def find_search(name: str) -> Search:
    """A search by its name."""
    if name not in SEARCHES:
        raise UnknownNameError("sampler of a sweep", name, SEARCHES)
    return SEARCHES[name]


def check_search(name: str, space: SearchSpace, trials: int | None) -> int | None:
    """Refuse a search that cannot serve a space; the number of trials that there may be."""
    search = find_search(name)
    search(space, 0, 0)
    if search is not grid:
        return trials
    size = space.grid_size
    require(
        trials is None or trials <= size,
        "--trials",
        got=f"{trials}",
        expected=f"at most the {size:,} points of the grid",
        fix="leave it out for all of them.",
    )
    return size if trials is None else trials
