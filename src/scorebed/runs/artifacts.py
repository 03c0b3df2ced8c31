"""What was trained, as files: saved with what it was made for, refused elsewhere, taken over by
other runs.
"""

import dataclasses
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
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

from scorebed._jit import jit_once
from scorebed.baselines.myopic import Myopic
from scorebed.densities.flow_marginal import FlowSizes, MarginalDensity, marginal_flow
from scorebed.densities.mixture_posterior import MixturePosterior
from scorebed.errors import InvalidValueError
from scorebed.keys import named
from scorebed.policies import make_policy
from scorebed.policies.base import Policy
from scorebed.policies.random import RandomDesigns
from scorebed.runs.config import RunConfig
from scorebed.runs.durable import replace_file
from scorebed.runs.folder import RunFolder
from scorebed.runs.methods import UPFRONT
from scorebed.runs.sections import DensityConfig, ScoreConfig
from scorebed.runs.serialisation import load_leaves, read_metadata
from scorebed.samplers.base import DesignSampler
from scorebed.samplers.paper import reference_sampler
from scorebed.scores import make_score, score_kind
from scorebed.scores.base import Score
from scorebed.scores.standardise import standardiser
from scorebed.tasks.base import Task

# The score that method `jointscore` made for the best policy of a repeat, and the posterior that
# `jointvarpost` made.
JOINT_SCORE, JOINT_POSTERIOR = "joint-score-{}.safetensors", "joint-posterior-{}.safetensors"

# Packages whose classes are no user's: what such a class holds does not change between two runs.
OURS = ("scorebed", "equinox", "builtins", "abc", "typing")


def fingerprint(task: Task) -> str:
    """A short hash of everything that makes a task: class, sizes, prior, horizon; the same in every
    process.
    """
    return hashlib.sha256("\n".join(_words(task)).encode()).hexdigest()[:16]


def _words(part: Any) -> Iterator[str]:
    """What something is made of. Not its `repr`, which may hold an address in memory, nor its
    leaves, which numpyro gives in the order of a set.
    """
    if isinstance(part, Task):
        names = _attributes(part)
    elif dataclasses.is_dataclass(part):
        names = [field.name for field in dataclasses.fields(part)]
    elif isinstance(part, Distribution):
        names = sorted(
            {*part.gather_pytree_data_fields(), *part.gather_pytree_aux_fields()}
            - {"_validate_args"}
        )
    elif isinstance(part, Transform | Constraint):
        names = sorted(vars(part))
    elif isinstance(part, tuple | list):
        yield from (word for each in part for word in _words(each))
        return
    elif isinstance(part, Mapping):
        yield from (word for item in sorted(part.items(), key=repr) for word in _words(item))
        return
    elif isinstance(part, float | int | np.ndarray | np.number | jax.Array):
        yield repr((np.shape(part), np.asarray(part).tolist()))
        return
    else:
        yield getattr(part, "__qualname__", re.sub(r" at 0x[0-9a-f]+", "", repr(part)))
        return
    yield type(part).__qualname__
    for name in names:
        yield name
        yield from _words(getattr(part, name, None))


def _attributes(task: Task) -> list[str]:
    """The fields of a task, and the values that a user's class has in their stead."""
    fields = [field.name for field in dataclasses.fields(task)]
    users = [each for each in type(task).__mro__ if each.__module__.partition(".")[0] not in OURS]
    values = {
        name
        for each in users
        for name, value in vars(each).items()
        if not name.startswith("_") and not callable(value) and not hasattr(value, "__get__")
    }
    # What designs cost is no part of the model: a score serves any price.
    return [name for name in fields if name != "cost"] + sorted(values - set(fields) - {"cost"})


def fresh_score(
    config: ScoreConfig, task: Task, sampler: DesignSampler, *, key: PRNGKeyArray
) -> Score:
    """An untrained score of the configured kind and sizes."""
    score: Score = jit_once(_maker(config, task, sampler))(key)
    return score


def _maker(
    config: ScoreConfig, task: Task, sampler: DesignSampler
) -> Callable[[PRNGKeyArray], Score]:
    sizes = {
        name: getattr(config, name)
        for name in ("particles", "cloud", "iterations", "width", "blocks", "heads")
    }

    def make(key: PRNGKeyArray) -> Score:
        standardise = standardiser(task, sampler, key=named(key, "standardise"))
        kind = score_kind(config.kind, sizes)
        return make_score(kind, task, standardise, key=named(key, "init"))

    return make


def load_score(path: Path, config: ScoreConfig, task: Task, sampler: DesignSampler) -> Score:
    """A saved score, refused if it was made for another task, prior or horizon."""
    score: Score = _load(path, _maker(config, task, sampler), task)
    return score


def fresh_marginal(
    config: DensityConfig, task: Task, sampler: DesignSampler, *, key: PRNGKeyArray
) -> MarginalDensity:
    """An untrained flow of the configured sizes."""
    return marginal_flow(
        task, sampler, FlowSizes(config.layers, config.width, config.depth, config.bins), key=key
    )


def load_marginal(
    path: Path, config: DensityConfig, task: Task, sampler: DesignSampler
) -> MarginalDensity:
    """A saved flow. It is built anew and its arrays replaced: a flow cannot be made from shapes
    alone.
    """
    require_made_for(path, task)
    arrays, rest = eqx.partition(fresh_marginal(config, task, sampler, key=jr.key(0)), eqx.is_array)
    density: MarginalDensity = eqx.combine(load_leaves(path, arrays), rest)
    return density


def fresh_posterior(
    config: DensityConfig, task: Task, sampler: DesignSampler, *, key: PRNGKeyArray
) -> MixturePosterior:
    """An untrained mixture posterior of the configured sizes."""
    made: MixturePosterior = jit_once(posterior_maker(config, task, sampler))(key)
    return made


def posterior_maker(
    config: DensityConfig, task: Task, sampler: DesignSampler
) -> Callable[[PRNGKeyArray], MixturePosterior]:
    """The mixture posterior of a key. Of its embedding only the frequencies are configured; the
    rest keeps the paper's proportions to the width: 64 features and hidden layers of 192 and 128 at
    256.
    """
    width = config.width

    def make(key: PRNGKeyArray) -> MixturePosterior:
        standardise = standardiser(task, sampler, key=named(key, "standardise"))
        return MixturePosterior(
            task,
            standardise,
            components=config.components,
            width=width,
            blocks=config.layers,
            heads=config.heads,
            features=max(1, width // 4),
            sigma=config.sigma,
            hidden=(max(1, 3 * width // 4), max(1, width // 2)),
            key=named(key, "init"),
        )

    return make


def load_posterior(
    path: Path, config: DensityConfig, task: Task, sampler: DesignSampler
) -> MixturePosterior:
    """A saved mixture posterior."""
    density: MixturePosterior = _load(path, posterior_maker(config, task, sampler), task)
    return density


def load_policy(path: Path, name: str, task: Task) -> Policy:
    """A saved policy of the architecture `name`, refused if it was made for another task, prior or
    horizon.
    """
    policy: Policy = _load(path, lambda key: make_policy(name, task, key=key), task)
    return policy


def untrained_policy(config: RunConfig, task: Task) -> Policy:
    """Designs that no training made: drawn at random, or found anew in every experiment."""
    if config.method == "random":
        return RandomDesigns(reference_sampler(task)[0])
    return Myopic(task, key=named(jr.key(config.seed), "myopic"))


def _load(path: Path, make: Callable[[PRNGKeyArray], Any], task: Task) -> Any:
    """What `make` would build, with the arrays of a file; the shapes alone are computed."""
    require_made_for(path, task)
    like = eqx.filter_eval_shape(make, jr.key(0))
    arrays, rest = eqx.partition(like, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))
    return eqx.combine(load_leaves(path, arrays), rest)


def check_upfront(run: Path, method: str, task: Task) -> dict[str, Any]:
    """The settings under which a run takes over what another learned upfront, refused unless it was
    made for this task.
    """
    source = RunFolder.open(run)
    config = source.config()
    for name in upfront_files(method, config):
        if not (run / name).exists():
            raise InvalidValueError(
                f"the run {run}",
                got=f"no {name} in it",
                expected=f"a finished run whose method shares with {method} what it learns upfront",
                fix=f"finish it first: scorebed resume {run}",
            )
        require_made_for(run / name, task)
    section = UPFRONT[method].section
    return {"score_run": str(run), section: dataclasses.asdict(getattr(config, section))}


def copy_upfront(run: Path, folder: RunFolder) -> None:
    """Copy what another run learned upfront, so that the new one stands on its own."""
    config = folder.config()
    for name in upfront_files(config.method, config):
        replace_file(folder.path / name, (run / name).read_bytes())


def upfront_files(method: str, config: RunConfig) -> list[str]:
    """The files of what a method learns upfront."""
    return [
        f"{UPFRONT[method].stem}-{index}.safetensors"
        for index in range(UPFRONT[method].count(config))
    ]


def require_made_for(path: Path, task: Task) -> None:
    """Refuse a file that was made for another task, prior or horizon."""
    made_for = read_metadata(path).get("task")
    if made_for != fingerprint(task):
        raise InvalidValueError(
            f"the file {path}",
            got=f"one made for another task, prior or horizon ({made_for})",
            expected=f"one made for this {type(task).__name__} ({fingerprint(task)})",
            fix="train one for this task.",
        )
