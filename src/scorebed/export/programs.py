"""A policy as four functions of plain arrays, which `jax.export` writes for other computers.

    init(w…) → m…                    design(w…, m…, noise) → ξ
    update(w…, m…, ξ, y) → m…        noise(w…, seed) → one row per step

w are the policy's arrays by name, m the leaves of its memory. The noise of a seed is that of a live
experiment with the same seed: the exported policy is the one that was evaluated, noise included.
Weights are arguments, not part of the programs: they are stored once, and both forms of a program
(`jax.export`, ONNX) come from the same function."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax import export
from jaxtyping import Array, Float

from scorebed.errors import InvalidValueError
from scorebed.keys import named
from scorebed.policies.base import Policy
from scorebed.runs.serialisation import leaf_names
from scorebed.tasks.base import Task

PLATFORMS = ("cpu",)
INIT, DESIGN, UPDATE, NOISE = NAMES = ("init", "design", "update", "noise")


class Program(NamedTuple):
    """A function of the weights followed by `inputs`; returns a tuple, one array per output."""

    call: Callable[..., tuple[Array, ...]]
    inputs: dict[str, jax.ShapeDtypeStruct]
    outputs: tuple[str, ...]


class Programs(NamedTuple):
    """What a live experiment needs of a policy; `noise` is how many random numbers a step takes."""

    weights: dict[str, Array]
    memory: tuple[jax.ShapeDtypeStruct, ...]
    noise: int
    dtype: str
    each: dict[str, Program]


def make_programs(policy: Policy, task: Task) -> Programs:
    """The four functions of a policy, for the horizon of its task."""
    arrays, static = eqx.partition(policy, eqx.is_array)
    leaves, tree = jax.tree_util.tree_flatten(arrays)
    weights = dict(zip(leaf_names(arrays), leaves, strict=True))
    memory, memory_tree = jax.tree_util.tree_flatten(jax.eval_shape(lambda: policy.init()))
    rows = jax.eval_shape(lambda: policy.sample_noise(task.horizon, key=jr.key(0)))
    dtype = jnp.result_type(float)

    def rebuild(values: Sequence[Array]) -> tuple[Policy, Sequence[Array]]:
        """The policy with these weights, and the arguments after them."""
        arrays = jax.tree_util.tree_unflatten(tree, values[: len(leaves)])
        return eqx.combine(arrays, static), values[len(leaves) :]

    def flat(value: Any) -> tuple[Array, ...]:
        return tuple(jax.tree_util.tree_leaves(value))

    def init(*values: Array) -> tuple[Array, ...]:
        return flat(rebuild(values)[0].init())

    def design(*values: Array) -> tuple[Array, ...]:
        rebuilt, (*state, noise) = rebuild(values)
        return (rebuilt.design(jax.tree_util.tree_unflatten(memory_tree, state), noise),)

    def update(*values: Array) -> tuple[Array, ...]:
        rebuilt, (*state, xi, y) = rebuild(values)
        return flat(rebuilt.update(jax.tree_util.tree_unflatten(memory_tree, state), xi, y))

    def noise(*values: Array) -> tuple[Array, ...]:
        rebuilt, (seed,) = rebuild(values)
        return (rebuilt.sample_noise(task.horizon, key=named(jr.key(seed), "noise", "policy")),)

    before = {f"memory_{i}": leaf for i, leaf in enumerate(memory)}
    after = tuple(f"after_{i}" for i in range(len(memory)))
    noise_row = jax.ShapeDtypeStruct(rows.shape[1:], rows.dtype)
    xi = jax.ShapeDtypeStruct((task.designs.dim,), dtype)
    y = jax.ShapeDtypeStruct((task.outcome_dim,), dtype)
    seed = jax.ShapeDtypeStruct((), jnp.int32)
    each = {
        INIT: Program(init, {}, after),
        DESIGN: Program(design, {**before, "noise": noise_row}, ("design",)),
        UPDATE: Program(update, {**before, "xi": xi, "y": y}, after),
        NOISE: Program(noise, {"seed": seed}, ("noise",)),
    }
    return Programs(weights, tuple(memory), rows.shape[1], dtype.name, each)


def serialise(programs: Programs, name: str) -> bytes:
    """A program as `jax.export` writes it, for any CPU."""
    program = programs.each[name]
    weights = [jax.ShapeDtypeStruct(w.shape, w.dtype) for w in programs.weights.values()]
    with _without_source_paths():
        export_for = export.export(jax.jit(program.call), platforms=PLATFORMS)
        exported = export_for(*weights, *program.inputs.values())
    try:
        return bytes(exported.serialize())
    except ImportError as missing:
        raise InvalidValueError(
            "exporting a policy",
            got=f"no package '{missing.name or 'flatbuffers'}'",
            expected="flatbuffers, in which JAX writes its programs",
            fix="pip install flatbuffers.",
        ) from missing


@contextlib.contextmanager
def _without_source_paths() -> Iterator[None]:
    """Keep the paths of source files on this machine out of the programs."""
    option = "jax_hlo_source_file_canonicalization_regex"
    before = getattr(jax.config, option)
    jax.config.update(option, ".*")
    try:
        yield
    finally:
        jax.config.update(option, before)


def noise_table(programs: Programs, seeds: int) -> Float[Array, "seeds T n"]:
    """The noise of the seeds 0, 1, …, for a runtime that cannot run the program `noise`."""
    each = jax.vmap(lambda seed: programs.each[NOISE].call(*programs.weights.values(), seed)[0])
    return jax.jit(each)(jnp.arange(seeds, dtype=jnp.int32))
