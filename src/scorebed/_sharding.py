"""One training over several devices: the experiments of a batch are shared out, and everything else
is on all of them.

The keys of a batch decide its experiments, so a batch that is shared out is the same batch: results
agree with those of one device but for the order in which sums are taken. Which devices are in use
is JAX's own context (`jax.set_mesh`), not ours."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax
from jax.sharding import AxisType, PartitionSpec
from jaxtyping import Array, Key

from scorebed.errors import require

AXIS = "batch"


def device_mesh(count: int) -> AbstractContextManager[Any]:
    """The context in which batches are shared out among the first `count` devices."""
    found = len(jax.devices())
    require(
        1 <= count <= found,
        "--devices",
        got=count,
        expected=f"from 1 to the {found} that JAX has found",
        fix="for more on a CPU set XLA_FLAGS=--xla_force_host_platform_device_count=N.",
    )
    if count == 1:
        return nullcontext()
    mesh = jax.make_mesh(
        (count,), (AXIS,), axis_types=(AxisType.Auto,), devices=jax.devices()[:count]
    )
    context: AbstractContextManager[Any] = jax.set_mesh(mesh)
    return context


def shard_batch(keys: Key[Array, " batch"]) -> Key[Array, " batch"]:
    """The keys of a batch, on the devices in use; a batch that cannot be shared out evenly is
    computed by each of them.
    """
    devices = jax.sharding.get_abstract_mesh()
    if devices.empty or len(keys) % devices.size:
        return keys
    return jax.lax.with_sharding_constraint(keys, PartitionSpec(AXIS))
