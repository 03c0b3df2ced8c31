"""Runs of a few seconds on a closed-form task, carried out by processes of their own that may be
killed.
"""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import jax
import numpy as np

from scorebed.runs.load import load

TINY = [
    "score.steps=60",
    "score.batch=16",
    "score.width=8",
    "score.particles=2",
    "score.cloud=2",
    "policy_training.steps=40",
    "policy_training.batch=16",
    "policy_training.monitor_every=20",
    "policy_training.monitor_inner=50",
    "evaluation.outer=32",
    "evaluation.inner=200",
    "evaluation.select_outer=16",
    "evaluation.select_inner=50",
]
SETTINGS = [part for value in TINY for part in ("--set", value)]

# A checkpoint after every block.
CODE = (
    "import sys, scorebed.runs.stage as k; k.CHECKPOINT_SECONDS = 0.0; from scorebed.cli "
    "import main; main()"
)

Command: TypeAlias = Callable[..., "subprocess.Popen[str]"]


def train(*arguments: str | Path) -> list[str]:
    """The command line of a tiny run."""
    return ["train", "linear-gaussian", *SETTINGS, *map(str, arguments)]


def finish(process: "subprocess.Popen[str]") -> str:
    """What a command answers, once it has ended well."""
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    return out


def same_parameters(ours: Path, theirs: Path) -> bool:
    """Whether score and policy of two runs agree to the last bit."""
    leaves: list[list[Any]] = [
        jax.tree.leaves((run.score, run.policy)) for run in (load(ours), load(theirs))
    ]
    return all(np.array_equal(a, b) for a, b in zip(*leaves, strict=True))
