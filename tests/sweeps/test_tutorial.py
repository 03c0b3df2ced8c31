"""The tutorial on three machines: its commands, run by three workers at tiny sizes."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "tutorials" / "sweep.md"
MACHINES = 3
TINY = {
    "score.steps": 10, "score.batch": 8, "score.width": 8, "score.particles": 2, "score.cloud": 2,
    "policy_training.steps": 2, "policy_training.batch": 4, "policy_training.monitor_every": 2,
    "policy_training.monitor": "contrastive", "policy_training.monitor_inner": 8,
    "evaluation.outer": 8, "evaluation.inner": 32, "evaluation.select_outer": 8,
    "evaluation.references": "false",
}  # fmt: skip
OF_TRIALS = ("policy_training.batch", "policy_training.monitor", "evaluation.")


def options(keys):
    return "".join(f" --set {key}={value}" for key, value in TINY.items() if key.startswith(keys))


def test_three_machines_find_the_best_policy(tmp_path):
    text = PAGE.read_text()
    blocks = re.findall(r"^```(bash|toml)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    # A shell finds this interpreter's commands.
    path = f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path}
    for language, block in blocks:
        if language == "toml":
            (tmp_path / "space.toml").write_text(block.replace("steps = 300", "steps = 2"))
            continue
        small = block.replace("--preset quick", "--preset quick" + options(("",)))
        small = small.replace("--trials 30", "--trials 3" + options(OF_TRIALS))
        count = MACHINES if small.startswith("scorebed sweep work") else 1
        started = [
            subprocess.Popen(
                ["bash", "-e", "-c", small],
                cwd=tmp_path,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for _ in range(count)
        ]
        for process in started:
            out, _ = process.communicate(timeout=900)
            assert process.returncode == 0, f"{small}\n{out}"
    assert len(list((tmp_path / "study" / "trials").iterdir())) == 3
    assert "<svg" in (tmp_path / "study" / "report.html").read_text()
    assert list((tmp_path / "bench").iterdir())
