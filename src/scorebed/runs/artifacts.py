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
from numpyro.distributions import Distribution
from numpyro.distributions.constraints import Constraint
from numpyro.distributions.transforms import Transform

from scorebed.errors import InvalidValueError, LeafMismatchError
from scorebed.methods.base import Job, Method
from scorebed.policies.base import Policy
from scorebed.runs.serialisation import load_leaves, read_metadata, save_leaves
from scorebed.runs.strict_json import Json
from scorebed.tasks.base import Task

# What a class says about itself besides its model: a score serves any price, preset and drawing.
NOT_THE_MODEL = {"cost", "few_modes", "preset_file", "design_scales", "exchangeable"}

# Packages whose classes are not the user's: what such a class holds does not change between runs.
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
    return [name for name in fields if name not in NOT_THE_MODEL] + sorted(
        values - set(fields) - NOT_THE_MODEL
    )


def save(path: Path, module: Any, task: Task, **marks: Json) -> None:
    """Write the arrays of a trained module, marked with the task that it was made for."""
    save_leaves(path, eqx.filter(module, eqx.is_array), {"task": fingerprint(task), **marks})


def load_like(path: Path, like: Any, task: Task) -> Any:
    """A saved module: `like` with the arrays of a file, refused if it was made for another task,
    prior or horizon, or has a network in it that has `changed`. Arrays of `like` may be shapes.
    """
    require_made_for(path, task)
    arrays, rest = eqx.partition(like, _is_array_or_shape)
    try:
        return eqx.combine(load_leaves(path, arrays), rest)
    except LeafMismatchError:
        parts = jax.tree.leaves(like, is_leaf=lambda part: hasattr(part, "changed"))
        why = [part.changed for part in parts if hasattr(part, "changed")]
        if not why:
            raise
        raise InvalidValueError(
            f"the file {path}",
            got="a network of other sizes, or of an earlier version of scorebed",
            expected=f"one of the configured sizes and of this version ({why[0]})",
            fix="train it again: scorebed train with the same settings and another --out.",
        ) from None


def load_policy(path: Path, make_policy: Callable[..., Policy], task: Task) -> Policy:
    """A saved policy, made as `make_policy(task, key=key)`."""
    like = eqx.filter_eval_shape(lambda key: make_policy(task, key=key), jr.key(0))
    policy: Policy = load_like(path, like, task)
    return policy


def upfront_files(method: Method, job: Job) -> list[str]:
    """The files of what a method learns upfront."""
    if not method.upfront_stem:
        return []
    return [f"{method.upfront_stem}-{index}.safetensors" for index in range(method.parts(job))]


def check_upfront(run: Path, method: Method, job: Job) -> None:
    """Refuse to take over what another run learned upfront unless it is there and was made for this
    task.
    """
    for name in upfront_files(method, job):
        if not (run / name).exists():
            raise InvalidValueError(
                f"the run {run}",
                got=f"no {name} in it",
                expected="a run that has learned it",
                fix=f"finish it first: scorebed resume {run}",
            )
        require_made_for(run / name, job.task)


def _is_array_or_shape(leaf: object) -> bool:
    return eqx.is_array(leaf) or isinstance(leaf, jax.ShapeDtypeStruct)


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
