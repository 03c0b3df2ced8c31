"""Trained scores and policies as files: saved with what they were made for, refused elsewhere, taken over by other runs."""

import dataclasses
import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.random as jr
import numpy as np
from jaxtyping import PRNGKeyArray
from numpyro.distributions import Distribution
from numpyro.distributions.constraints import Constraint
from numpyro.distributions.transforms import Transform

from scorebed.errors import InvalidValueError
from scorebed.keys import named
from scorebed.once import once
from scorebed.policies import make_policy
from scorebed.policies.base import Policy
from scorebed.runs.config import ScoreConfig
from scorebed.runs.durable import replace_file
from scorebed.runs.folder import RunFolder
from scorebed.runs.leaves import load_leaves, read_metadata
from scorebed.samplers.base import DesignSampler
from scorebed.scores import make_score
from scorebed.scores.base import Score
from scorebed.scores.standardise import standardiser
from scorebed.tasks.base import Task

# The score that method `jointscore` made for the best policy of a repeat.
JOINT_SCORE = "joint-score-{}.safetensors"


def fingerprint(task: Task) -> str:
    """A short hash of everything that makes a task: class, sizes, prior, horizon; the same in every process."""
    return hashlib.sha256("\n".join(_words(task)).encode()).hexdigest()[:16]


def _words(part: Any) -> Iterator[str]:
    """What something is made of. Not its `repr`, which may hold an address in memory, nor its leaves, which numpyro gives in the
    order of a set."""
    if dataclasses.is_dataclass(part):
        names = [field.name for field in dataclasses.fields(part)]
    elif isinstance(part, Distribution):
        names = sorted({*part.gather_pytree_data_fields(), *part.gather_pytree_aux_fields()} - {"_validate_args"})
    elif isinstance(part, Transform | Constraint):
        names = sorted(vars(part))
    elif isinstance(part, tuple | list):
        yield from (word for each in part for word in _words(each))
        return
    elif isinstance(part, float | int | np.ndarray | np.number | jax.Array):
        yield repr((np.shape(part), np.asarray(part).tolist()))
        return
    else:
        yield getattr(part, "__qualname__", repr(part))
        return
    yield type(part).__qualname__
    for name in names:
        yield name
        yield from _words(getattr(part, name, None))


def fresh_score(config: ScoreConfig, task: Task, sampler: DesignSampler, *, key: PRNGKeyArray) -> Score:
    """An untrained score of the configured kind and sizes."""
    score: Score = once(_maker(config, task, sampler))(key)
    return score


def _maker(config: ScoreConfig, task: Task, sampler: DesignSampler) -> Callable[[PRNGKeyArray], Score]:
    sizes = {name: getattr(config, name) for name in ("particles", "cloud", "width", "blocks", "heads")}

    def make(key: PRNGKeyArray) -> Score:
        standardise = standardiser(task, sampler, key=named(key, "standardise"))
        return make_score(config.kind, task, standardise, sizes, key=named(key, "init"))

    return make


def load_score(path: Path, config: ScoreConfig, task: Task, sampler: DesignSampler) -> Score:
    """A saved score, refused if it was made for another task, prior or horizon."""
    score: Score = _load(path, _maker(config, task, sampler), task)
    return score


def load_policy(path: Path, name: str, task: Task) -> Policy:
    """A saved policy of the architecture `name`, refused if it was made for another task, prior or horizon."""
    policy: Policy = _load(path, lambda key: make_policy(name, task, key=key), task)
    return policy


def _load(path: Path, make: Callable[[PRNGKeyArray], Any], task: Task) -> Any:
    """What `make` would build, with the arrays of a file; the shapes alone are computed."""
    require_made_for(path, task)
    like = eqx.filter_eval_shape(make, jr.key(0))
    arrays, rest = eqx.partition(like, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))
    return eqx.combine(load_leaves(path, arrays), rest)


def check_score(run: Path, task: Task) -> dict[str, Any]:
    """The settings under which a run takes over the scores of another, refused unless they were made for this task."""
    source = RunFolder.open(run)
    config = source.config()
    paths = [run / f"score-{index}.safetensors" for index in range(config.score.seeds)]
    for path in paths:
        if not path.exists():
            raise InvalidValueError(
                f"the run {run}",
                got=f"no {path.name} in it",
                expected="a run whose scores are trained",
                fix=f"finish it first: scorebed resume {run}",
            )
        require_made_for(path, task)
    return {"score_run": str(run), "score": dataclasses.asdict(config.score)}


def copy_scores(run: Path, folder: RunFolder) -> None:
    """Copy the scores of another run, so that the new one stands on its own."""
    for index in range(folder.config().score.seeds):
        name = f"score-{index}.safetensors"
        replace_file(folder.path / name, (run / name).read_bytes())


def require_made_for(path: Path, task: Task) -> None:
    """Refuse a file that was made for another task, prior or horizon."""
    made_for = read_metadata(path).get("task")
    if made_for != fingerprint(task):
        raise InvalidValueError(
            f"the file {path}",
            got=f"one made for another task, prior or horizon ({made_for})",
            expected=f"one made for this {type(task).__name__} ({fingerprint(task)})",
            fix="train a score for this task.",
        )
