"""Random keys by name, so that a new consumer of randomness shifts nobody else's draws."""

import zlib

import jax.random as jr
from jaxtyping import PRNGKeyArray


def named(key: PRNGKeyArray, *path: str | int) -> PRNGKeyArray:
    """The key of a named place below `key`: `named(key, "policy", 3)`. Equal paths give equal
    keys.
    """
    for part in path:
        key = jr.fold_in(key, zlib.crc32(part.encode()) if isinstance(part, str) else part)
    return key
