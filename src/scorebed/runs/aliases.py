"""Keys of configurations that an earlier version wrote, and what they are called now.

Format 1 had one section for all densities, contrastive sizes among those of stage 2, and listed the
settings of every method in every run.
"""

from collections.abc import Mapping
from typing import Any

from scorebed.methods.reading import own_table

# (section, key) → the same; OWN is the section of the run's method.
OWN = ""
MOVED = {
    ("policy_training", "limit"): ("policy_training", "trajectory_clip"),
    ("policy_training", "inner"): (OWN, "inner"),
    ("policy_training", "base"): (OWN, "base"),
    ("policy_training", "levels"): (OWN, "levels"),
    ("policy_training", "tau"): (OWN, "tau"),
    ("score", "joint_rate"): (OWN, "score_rate"),
    ("density", "sigma"): (OWN, "frequency_scale"),
}
DENSITY = "density"
# The number of layers of a flow, and of blocks of a transformer.
BLOCKS = {"varpost": "blocks", "jointvarpost": "blocks"}
VALUES = {("score", "weights"): {"own": "score"}}


def renamed(section: str, key: str, method: str) -> tuple[str, str]:
    """The section and key of today for those of format 1; what has not changed stays."""
    own = own_table(method)
    if (section, key) == (DENSITY, "layers"):
        return own, BLOCKS.get(method, key)
    if (section, key) in MOVED:
        section, key = MOVED[section, key]
        return section or own, key
    return (own, key) if section == DENSITY else (section, key)


def revalued(section: str, key: str, value: Any) -> Any:
    """The value of today for one of format 1."""
    return VALUES.get((section, key), {}).get(value, value) if isinstance(value, str) else value


def upgraded(values: Mapping[str, Any], used: Mapping[str, Any]) -> dict[str, Any]:
    """A whole configuration of format 1 as one of today. Of its sections only what is `used` by the
    method stays: key names by section.
    """
    method = str(values.get("method", ""))
    found: dict[str, Any] = {}
    for section, value in values.items():
        if not isinstance(value, Mapping):
            found[section] = value
            continue
        for key, setting in value.items():
            new, name = renamed(section, key, method)
            if new not in used or name in used[new]:
                found.setdefault(new, {})[name] = revalued(new, name, setting)
    if digest := found.pop("task_source", ""):
        found["sources"] = {"task": digest}
    return found
