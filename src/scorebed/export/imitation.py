"""A network in place of a policy that needs the model, and what it loses."""

from typing import Any, NamedTuple

import jax.random as jr
import numpy as np

from scorebed.bounds import tight_bounds
from scorebed.bounds.base import Bounds
from scorebed.keys import named
from scorebed.policies import make_policy
from scorebed.policies.base import Policy
from scorebed.runs.load import Run
from scorebed.training.distillation import distil


class Imitation(NamedTuple):
    """The network, and tight bounds of it and of the policy that it imitates in the same
    experiments; None for models without a density.
    """

    policy: Policy
    kind: str
    of: str
    experiments: int
    bounds: tuple[Bounds, Bounds] | None

    def manifest(self, policy_sha256: str) -> dict[str, Any]:
        """What the manifest of the folder says about it."""
        about = {"of": self.of, "policy": self.kind, "experiments": self.experiments}
        if self.bounds is None:
            nothing = dict.fromkeys(("behind", "behind_se"))
            expected = {"lower": None, "upper": None}
            return {
                "policy_sha256": policy_sha256,
                "expected": expected,
                "distilled": about | nothing | {"outer": 0},
            }
        found, original = self.bounds
        ours, theirs = found.groups, original.groups
        assert ours is not None  # tight bounds keep every trajectory
        assert theirs is not None
        behind = np.asarray(theirs.lower) - np.asarray(ours.lower)
        error = float(behind.std(ddof=1) / len(behind) ** 0.5)
        lost = {"behind": float(behind.mean()), "behind_se": error, "outer": found.outer}
        return {
            "policy_sha256": policy_sha256,
            "expected": {"lower": found.lower, "upper": found.upper},
            "distilled": about | lost,
        }


def imitated(run: Run, kind: str, experiments: int, outer: int) -> Imitation:
    """A network of that kind, trained to imitate the policy of a run."""
    task, teacher, key = run.task, run.policy, named(jr.key(run.config.seed), "distil")
    student = distil(
        task,
        teacher,
        make_policy(kind, task, key=named(key, "student")),
        experiments=experiments,
        key=named(key, "training"),
    )
    bounds = None
    if task.tight_bound is not None:
        draws = named(key, "bounds")
        ours = tight_bounds(task, student, outer=outer, key=draws)
        bounds = ours, tight_bounds(task, teacher, outer=outer, key=draws)
    return Imitation(student, kind, type(teacher.unwrapped).__name__, experiments, bounds)
