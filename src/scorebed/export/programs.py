"""A policy as four functions of plain arrays, which `jax.export` writes down for other computers.

    init(w…) → m…     design(w…, m…, noise) → ξ     update(w…, m…, ξ, y) → m…     noise(w…, seed) → one row per step

w are the policy's arrays by name and m its memory, flat. The noise of a seed is that of a live
experiment with this seed, so the policy that is carried away is the one that was evaluated, noise
included. Weights are arguments, not part of the programs: they are in one file, and both forms of a
program (`jax.export`, ONNX) are of the same function."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax import export
from jaxtyping import Array

from scorebed.errors import InvalidValueError
from scorebed.keys import named
from scorebed.policies.base import Policy
from scorebed.runs.serialisation import leaf_names
from scorebed.tasks.base import Task

PLATFORMS = ("cpu",)
INIT, DESIGN, UPDATE, NOISE = NAMES = ("init", "design", "update", "noise")


class Program(NamedTuple):
    """A function of the weights and then of `inputs`, by name; it returns a tuple."""

    call: Callable[..., tuple[Array, ...]]
    inputs: dict[str, jax.ShapeDtypeStruct]
    outputs: tuple[str, ...]


class Programs(NamedTuple):
    """What a live experiment needs of a policy. `noise` is the number of random numbers of a
    step.
    """

    weights: dict[str, Array]
    memory: tuple[jax.ShapeDtypeStruct, ...]
    noise: int
    dtype: str
    each: dict[str, Program]


def make_programs(policy: Policy, task: Task) -> Programs:
    """The four functions of a policy for the horizon of its task."""
    arrays, rest = eqx.partition(policy, eqx.is_array)
    leaves, tree = jax.tree_util.tree_flatten(arrays)
    weights = dict(zip(leaf_names(arrays), leaves, strict=True))
    shapes = jax.eval_shape(lambda: policy.init())
    memory, shape = jax.tree_util.tree_flatten(shapes)
    row = jax.eval_shape(lambda: policy.sample_noise(task.horizon, key=jr.key(0)))
    dtype = jnp.result_type(float)
    count, kept = len(leaves), len(memory)

    def whole(values: Sequence[Array]) -> tuple[Policy, Sequence[Array]]:
        return eqx.combine(jax.tree_util.tree_unflatten(tree, values[:count]), rest), values[count:]

    def flat(value: Any) -> tuple[Array, ...]:
        return tuple(jax.tree_util.tree_leaves(value))

    def init(*values: Array) -> tuple[Array, ...]:
        return flat(whole(values)[0].init())

    def design(*values: Array) -> tuple[Array, ...]:
        mine, (*state, noise) = whole(values)
        return (mine.design(jax.tree_util.tree_unflatten(shape, state), noise),)

    def update(*values: Array) -> tuple[Array, ...]:
        mine, (*state, xi, y) = whole(values)
        return flat(mine.update(jax.tree_util.tree_unflatten(shape, state), xi, y))

    def noise(*values: Array) -> tuple[Array, ...]:
        mine, (seed,) = whole(values)
        return (mine.sample_noise(task.horizon, key=named(jr.key(seed), "noise", "policy")),)

    def vector(size: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((size,), dtype)

    state = {f"memory_{i}": leaf for i, leaf in enumerate(memory)}
    after = tuple(f"after_{i}" for i in range(kept))
    return Programs(
        weights,
        tuple(memory),
        row.shape[1],
        dtype.name,
        {
            INIT: Program(init, {}, after),
            DESIGN: Program(
                design,
                {**state, "noise": jax.ShapeDtypeStruct(row.shape[1:], row.dtype)},
                ("design",),
            ),
            UPDATE: Program(
                update,
                {**state, "xi": vector(task.designs.dim), "y": vector(task.outcome_dim)},
                after,
            ),
            NOISE: Program(noise, {"seed": jax.ShapeDtypeStruct((), jnp.int32)}, ("noise",)),
        },
    )


def serialised(programs: Programs, name: str) -> bytes:
    """A program as `jax.export` writes it, for CPUs of any kind."""
    program = programs.each[name]
    given = [jax.ShapeDtypeStruct(array.shape, array.dtype) for array in programs.weights.values()]
    with _without_paths():
        exported = export.export(jax.jit(program.call), platforms=PLATFORMS)(
            *given, *program.inputs.values()
        )
    try:
        return bytes(exported.serialize())
    except ImportError as missing:
        raise InvalidValueError(
            "a policy for export",
            got=f"no package '{missing.name or 'flatbuffers'}'",
            expected="flatbuffers, in which JAX writes its programs",
            fix="pip install flatbuffers.",
        ) from missing


@contextlib.contextmanager
def _without_paths() -> Iterator[None]:
    """Programs name the lines of code that they come from; where that code lies on this machine is
    nobody's business.
    """
    option = "jax_hlo_source_file_canonicalization_regex"
    before = getattr(jax.config, option)
    jax.config.update(option, ".*")
    try:
        yield
    finally:
        jax.config.update(option, before)


def noise_of(programs: Programs, seeds: int) -> Array:
    """The noise of the seeds 0, 1, …: for those who cannot run the program that makes it."""
    each = jax.vmap(lambda seed: programs.each[NOISE].call(*programs.weights.values(), seed)[0])
    return jax.jit(each)(jnp.arange(seeds, dtype=jnp.int32))
