"""Bounds from groups of trajectories that share no draws: any number of processes may compute them.

What group g gives depends on the key and on g alone, and the bounds are made of all groups in their
order: who has computed which does not matter.
"""

import abc
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import equinox as eqx
import numpy as np
from jaxtyping import PRNGKeyArray

from scorebed.bounds.base import Bounds, OnGroup
from scorebed.policies.base import Policy

# Numbers of the trajectories of a group, by name.
GroupValues: TypeAlias = Mapping[str, np.ndarray]


class Grouped(eqx.Module):
    """A bound of one size for one task, as groups of trajectories."""

    @property
    @abc.abstractmethod
    def groups(self) -> int:
        """How many there are."""

    @abc.abstractmethod
    def values(self, policy: Policy, group: int, *, key: PRNGKeyArray) -> GroupValues:
        """What one group gives; `key` is that of all."""

    @abc.abstractmethod
    def bounds(self, policy: Policy, found: Sequence[GroupValues]) -> Bounds:
        """The bounds of a policy, of what all groups gave."""


def bounds_by_groups(
    grouped: Grouped, policy: Policy, *, on_group: OnGroup, key: PRNGKeyArray
) -> Bounds:
    """The bounds of a policy, one group after another."""
    found = []
    for group in range(grouped.groups):
        found.append(grouped.values(policy, group, key=key))
        on_group(group + 1, grouped.groups)
    return grouped.bounds(policy, found)
