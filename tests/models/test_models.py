"""Models that nobody tuned for: each goes from its file through `check` and `train --minutes`.

`--minutes` is one here, or SCOREBED_MODEL_MINUTES; what each reached is printed (`pytest -s`).
"""

import importlib
import json
import os
from pathlib import Path

import pytest

from scorebed.check.traced import traced_findings
from scorebed.cli._app import run as main

HERE = Path(__file__).parent
MODELS = {
    "overflowing_ode": "Growth",
    "student_t": "task",
    "hierarchical": "task",
    "four_peaks": "FourPeaks",
    "one_step": "Threshold",
    "two_hundred_steps": "Heater",
    "fifty_parameters": "Curve",
    "scales": "Diffusion",
    "binary_answers": "Germination",
    "counts": "task",
    "ordered_categories": "Tasting",
    "discrete_design": "Binding",
    "answers_from_a_list": "Retention",
}
MINUTES = os.environ.get("SCOREBED_MODEL_MINUTES", "1")


@pytest.mark.parametrize("model", MODELS)
def test_a_model_can_be_traced(model):
    """What `check` finds without drawing anything: nothing."""
    found = getattr(importlib.import_module(f"models.{model}"), MODELS[model])
    assert traced_findings(found() if isinstance(found, type) else found) == []


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_a_model_goes_from_its_file_to_a_policy(model, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = f"{HERE / model}.py:{MODELS[model]}"
    assert main(["check", name, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert not [each for each in found["findings"] if each["severity"] == "error"]
    assert main(["train", name, "--minutes", MINUTES, "--out", "run", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["lower"] == record["lower"]  # not NaN
    with capsys.disabled():
        ahead = {
            other: (round(values["advantage"], 3), round(values["advantage_se"], 3))
            for other, values in record["references"].items()
        }
        print(  # noqa: T201
            f"\n{model}: {record['lower']:.3f} ± {record['lower_se']:.3f} nats, ahead {ahead}, "
            f"N = {record['outer']}, {record['seconds']['total']:.0f} s"
        )
