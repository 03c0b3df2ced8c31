"""The comparison of two recordings sees what it should, and nothing else."""

import copy

import numpy as np
import pytest
from compare import differences
from record import arrays
from safetensors.numpy import save_file

CASE = {
    "exact": {"/nle": 2400, "/choices/choice-0/best": 2, "/policy": "dad"},
    "words": {"/error": "a sentence about it"},
    "bounds": {"/lower": [1.0, 0.05]},
    "numbers": {"/metrics/policy-0-0/last/surrogate/0": -3.2},
}


@pytest.fixture
def case(tmp_path):
    """A case with one leaf that is recorded whole and one by its projections."""
    drawn = np.random.default_rng(0).standard_normal

    def make(small: float = 0.0, large: float = 0.0, name: str = "large") -> dict:
        leaves = {
            "small": np.arange(1.0, 9.0, dtype=np.float32),
            name: np.ones((40, 40), np.float32),
        }
        leaves["small"][0] += small * np.linalg.norm(leaves["small"])
        leaves[name] += np.float32(large) * drawn((40, 40)).astype(
            np.float32
        )  # whose norm is about that of the leaf
        save_file(leaves, tmp_path / "policy-0.safetensors")
        found = {
            f"policy-0/{leaf}": value
            for leaf, value in arrays(tmp_path / "policy-0.safetensors").items()
        }
        return copy.deepcopy(CASE) | {"arrays": found}

    return make


def wrong(old: dict, new: dict) -> list[str]:
    return [each.key for each in differences(old, new) if not each.allowed]


def test_nothing_differs_from_itself_or_within_the_tolerances(case):
    new = case(small=2e-6, large=2e-6)
    new["bounds"]["/lower"] = [1.004, 0.052]
    new["numbers"]["/metrics/policy-0-0/last/surrogate/0"] *= 1 + 5e-5
    assert list(differences(case(), case())) == []
    assert list(differences(case(), new)) == []


@pytest.mark.parametrize(
    ("kind", "key", "value"),
    [
        ("exact", "/nle", 2401),
        ("exact", "/choices/choice-0/best", 1),
        ("exact", "/nle", 2400.0),
        ("bounds", "/lower", [1.006, 0.05]),
        ("bounds", "/lower", [1.0, 0.06]),
        ("bounds", "/lower", [float("nan"), 0.05]),
        ("numbers", "/metrics/policy-0-0/last/surrogate/0", -3.201),
        ("numbers", "/metrics/policy-0-0/last/surrogate/0", float("nan")),
    ],
)
def test_a_planted_difference_is_found(case, kind, key, value):
    new = case()
    new[kind][key] = value
    if isinstance(value, float) and kind == "exact":
        new["numbers"][key] = new["exact"].pop(key)
    assert wrong(case(), new) == [key]


def test_parameters_that_differ_by_more_than_1e_5_are_found(case):
    """A large leaf is judged by eight projections: at 1e-4 of its norm they miss it with a chance
    of 1e-7 (χ² with 8 degrees of freedom under 0.08).
    """
    assert wrong(case(), case(small=3e-5)) == ["policy-0/small"]
    assert wrong(case(), case(large=1e-4)) == ["policy-0/large"]
    lost = case()
    del lost["arrays"]["policy-0/small"]
    assert wrong(case(), lost) == ["policy-0/small"]
    assert wrong(lost, case()) == ["policy-0/small"]


def test_what_is_gone_is_wrong_and_what_is_new_or_renamed_is_only_told(case):
    new = case(name="wide")
    new["exact"]["/tight"], new["words"]["/error"] = 3, "another sentence about it"
    found = {each.key: each.what for each in differences(case(), new)}
    assert found.keys() == {"/tight", "/error", "policy-0/large"}
    assert found["policy-0/large"] == "is now policy-0/wide"
    assert wrong(case(), new) == []
    del new["exact"]["/nle"]
    assert wrong(case(), new) == ["/nle"]
