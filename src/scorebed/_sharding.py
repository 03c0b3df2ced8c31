"""One training over several devices, of one host or of several: the experiments of a batch are
shared out, and everything else is on all of them.

The keys of a batch decide its experiments, so a batch that is shared out is the same batch: results
agree with those of one device but for the order in which sums are taken. Which devices are in use
is JAX's own context (`jax.set_mesh`), not ours."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, PartitionSpec
from jaxtyping import Array, Key

from scorebed.errors import require

AXIS = "batch"
Tree = TypeVar("Tree")


def device_mesh(count: int) -> AbstractContextManager[Any]:
    """The context in which batches are shared out among the first `count` devices of this host."""
    devices = _first(count)
    return nullcontext() if count == 1 else _mesh(devices)


def host_mesh(count: int) -> AbstractContextManager[Any]:
    """The context in which batches are shared out among the first `count` devices of every host."""
    _first(count)
    hosts = range(jax.process_count())
    return _mesh([each for host in hosts for each in jax.local_devices(host)[:count]])


def _first(count: int) -> Sequence[Any]:
    """So many devices of this host, if it has them."""
    found = jax.local_devices()
    require(
        1 <= count <= len(found),
        "--devices",
        got=count,
        expected=f"from 1 to the {len(found)} that JAX has found",
        fix="for more on a CPU set XLA_FLAGS=--xla_force_host_platform_device_count=N.",
    )
    return found[:count]


@contextmanager
def _mesh(devices: Sequence[Any]) -> Iterator[None]:
    kinds = (AxisType.Auto,)
    # JAX changes its context as soon as this is called: not before it is entered.
    with jax.set_mesh(jax.make_mesh((len(devices),), (AXIS,), axis_types=kinds, devices=devices)):
        yield


def shard_batch(keys: Key[Array, " batch"]) -> Key[Array, " batch"]:
    """The keys of a batch, on the devices in use; a batch that cannot be shared out evenly is
    computed by each of them.
    """
    devices = jax.sharding.get_abstract_mesh()
    if devices.empty or len(keys) % devices.size:
        return keys
    return jax.lax.with_sharding_constraint(keys, PartitionSpec(AXIS))


def replicated(tree: Tree) -> Tree:
    """Inside of a program: the same arrays, in full on every device in use."""
    if jax.sharding.get_abstract_mesh().empty:
        return tree
    whole: Tree = jax.lax.with_sharding_constraint(tree, PartitionSpec())
    return whole


def on_this_host(tree: Tree) -> Tree:
    """Arrays that several hosts hold in full as arrays of this one; any others as they are. Hosts
    that then do different things with them cannot wait for each other.
    """

    def fetched(leaf: Any) -> Any:
        shared = isinstance(leaf, jax.Array) and not leaf.is_fully_addressable
        return jnp.asarray(np.asarray(leaf)) if shared else leaf

    found: Tree = jax.tree.map(fetched, tree)
    return found
