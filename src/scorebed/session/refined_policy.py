"""Policies that were refined in an experiment, as bytes: named arrays in the format of safetensors,
and back into their shape.
"""

import equinox as eqx
import jax.random as jr

from scorebed.policies.base import Policy
from scorebed.runs.serialisation import decode_leaves, encode_leaves
from scorebed.session.table import extended


def encode_policy(policy: Policy, fingerprint: str) -> bytes:
    """The arrays of a policy, with the hash of its task."""
    return encode_leaves(eqx.filter(policy, eqx.is_array), {"task": fingerprint})


def decode_policy(data: bytes, like: Policy, *, horizon: int, trained: int, where: str) -> Policy:
    """A refined policy of the architecture of `like`, which was trained for `trained` steps;
    `LeafMismatchError` for others.
    """
    arrays, rest = eqx.partition(extended(like, horizon, trained, key=jr.key(0)), eqx.is_array)
    policy: Policy = eqx.combine(decode_leaves(data, arrays, where=where), rest)
    return policy
