"""Settings that an earlier version called otherwise, and what they are called now.

Format 1 of a configuration had one section for all densities, contrastive sizes among those of
stage 2, and listed the settings of every method in every run.
"""

from collections.abc import Collection, Mapping
from typing import Any

from scorebed.methods import METHODS
from scorebed.methods.reading import own_table
from scorebed.methods.settings import settings_of

# (section, key) → the same; OWN is the section of the run's method.
OWN = ""
MOVED = {
    ("policy_training", "limit"): ("policy_training", "trajectory_clip"),
    ("policy_training", "inner"): (OWN, "inner"),
    ("policy_training", "base"): (OWN, "base"),
    ("policy_training", "levels"): (OWN, "levels"),
    ("policy_training", "tau"): (OWN, "tau"),
    ("score", "joint_rate"): (OWN, "score_rate"),
}
DENSITY, POSTERIOR = "density", "posterior"
# Who has a density; that of any other run is the one that bounds a model without a likelihood.
WITH_FLOW, WITH_POSTERIOR = ("varmarg",), ("varpost", "jointvarpost")
OF_POSTERIOR = {"layers": "blocks", "sigma": "frequency_scale"}
OF_FLOW_ALONE = ("depth", "bins")
# Settings of a section that are the run's own: another name for them.
OF_RUN = {("score", "sampler"): "sampler"}
VALUES = {("score", "weights"): {"own": "score"}}
# Sections that every configuration had, whether they were used or not.
LISTED = ("score", DENSITY, "iosmc", "policy_training")


def renamed(section: str, key: str, method: str) -> tuple[str, str]:
    """The section and key of today for those of format 1; what has not changed stays."""
    if section == DENSITY:
        owner = own_table(method) if method in (*WITH_FLOW, *WITH_POSTERIOR) else POSTERIOR
        return owner, key if method in WITH_FLOW else OF_POSTERIOR.get(key, key)
    new, name = MOVED.get((section, key), (section, key))
    if new == OWN:  # settings of some methods; reported to others as written
        owns = method in METHODS and name in settings_of(METHODS[method])
        return (own_table(method), name) if owns else (section, key)
    return new, name


def revalued(section: str, key: str, value: Any) -> Any:
    """The value of today for one of format 1."""
    return VALUES.get((section, key), {}).get(value, value) if isinstance(value, str) else value


def upgraded(values: Mapping[str, Any], used: Mapping[str, Collection[str]]) -> dict[str, Any]:
    """A whole configuration of format 1 as one of today.

    `used` are the keys that the run uses, by section: of what format 1 listed the rest goes. A task
    of the user's may have no density; the posterior that then bounds its EIG stays.
    """
    method = str(values.get("method", ""))
    found: dict[str, Any] = {}
    for section, value in values.items():
        if not isinstance(value, Mapping):
            found[section] = value
            continue
        for key, setting in value.items():
            new, name = renamed(section, key, method)
            listed = section in LISTED
            if new != POSTERIOR and (not listed or name in used.get(new, ())):
                found.setdefault(new, {})[name] = revalued(new, name, setting)
    if digest := found.pop("task_source", ""):
        found["sources"] = {"task": digest}
    if ":" in str(values.get("task")) and isinstance(values.get(DENSITY), Mapping):
        found[POSTERIOR] = {
            OF_POSTERIOR.get(key, key): setting
            for key, setting in values[DENSITY].items()
            if key not in OF_FLOW_ALONE
        }
    return found
