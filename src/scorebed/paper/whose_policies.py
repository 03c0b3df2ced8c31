"""`--policies`: the paper's, or those of another preset with what they are trained by.

Other policies come with the settings of `items.toml`: their optimiser and the score that suits
them, which do not change with the scale, and a largest number of steps and batch, since they learn
in hundreds of steps what a network learns in thousands, and each of their designs may evaluate the
likelihood. So the budget of such a row is not the paper's: its record says what it spent. A method
that cannot train the policy keeps the paper's.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from scorebed.errors import InvalidValueError
from scorebed.paper.data import read
from scorebed.paper.scale import POLICY, overrides
from scorebed.paper.study import Study
from scorebed.presets import DEFAULT_METHOD
from scorebed.presets.reader import policy_for, preset_values
from scorebed.runs.begin import Request, plan
from scorebed.runs.config import overrides_for


@dataclasses.dataclass(frozen=True)
class OtherPolicies:
    """What is taken over from another preset: a policy, settings, and largest sizes, by dotted
    keys.
    """

    policy: str
    settings: Mapping[str, Any]
    most: Mapping[str, int]

    def request(self, of: Request) -> Request:
        """A request with this policy in place of its preset's."""
        taken = overrides_for(of.method, overrides(self.settings))
        return dataclasses.replace(of, policy=self.policy, overrides=[*of.overrides, *taken])

    def limited(self, values: Mapping[str, Any], scaled: Mapping[str, Any]) -> dict[str, Any]:
        """The settings that the scale changes, without those that came with the policy, and within
        the largest sizes; `values` are those of the whole run before.
        """
        changed = {key: value for key, value in scaled.items() if key not in self.settings}
        if not _trained_together(values):
            for key, most in self.most.items():
                table, _, name = key.partition(".")
                changed[key] = min(most, changed.get(key, values[table][name]))
        return changed


def other_policies(request: Request, study: Study) -> OtherPolicies | None:
    """What the study's choice changes in a request; None for the preset's own policies, and where
    the method cannot train the others.
    """
    choice = read("items")["policies"][study.policies]
    if "preset" not in choice:
        return None
    preset, task = choice["preset"], request.task
    policy = policy_for(preset, task, method=choice["policy_of"])
    values = preset_values(preset, request.task_name, task, method=DEFAULT_METHOD, policy=policy)
    found = OtherPolicies(
        policy, _by_key(values, choice["keys"]), _by_key(values, choice["at_most"])
    )
    plan(request)  # whatever else is wrong with it is said here
    try:
        plan(found.request(request))
    except InvalidValueError:
        return None
    return found


def _trained_together(values: Mapping[str, Any]) -> bool:
    """Whether a network is trained in the steps of the policies, and needs them."""
    tables = [v for k, v in values.items() if isinstance(v, Mapping) and k != POLICY]
    return any("width" in table and "steps" not in table for table in tables)


def _by_key(values: Mapping[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    """Of nested values those of some dotted keys, where they exist."""
    pairs = [(key, key.partition(".")) for key in keys]
    return {key: values[t][name] for key, (t, _, name) in pairs if name in values.get(t, {})}
