"""Runs of a few seconds on a closed-form task, carried out by processes of their own that may be
killed.
"""

import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeAlias

import jax
import numpy as np

from scorebed.methods import METHODS
from scorebed.methods.reading import table_settings
from scorebed.runs.load import load

# Settings of the tables that a method may use, by table.
SCORE = ["steps=60", "batch=16", "width=8", "particles=2", "cloud=2"]
POSTERIOR = ["width=8", "blocks=1", "heads=2"]
UPFRONT = ["steps=30", "batch=16"]
TABLES = {
    "score": SCORE,
    "policy_training": ["steps=40", "batch=16", "monitor_every=20", "monitor_inner=50"],
    "pce": ["inner=3"],
    "nmc": ["inner=3"],
    "static": ["inner=3"],
    "mlmc": ["levels=3"],
    "varmarg": ["width=8", "layers=1", *UPFRONT],
    "varpost": [*POSTERIOR, *UPFRONT],
    "jointvarpost": POSTERIOR,
    "predictive": ["width=8", "particles=2", *UPFRONT],
    "iosmc": ["trajectories=8", "particles=8"],
    "evaluation": ["outer=32", "tight_outer=0", "inner=200", "select_outer=16", "select_inner=50"],
}


def tiny(method: str = "score") -> list[str]:
    """Settings that make a run of a method tiny, of the tables that it uses and no others."""
    kind = {"score": {"kind": "particles"}}
    used = [*(table_settings(method, kind) if method in METHODS else {}), "evaluation"]
    return [f"{table}.{value}" for table in used for value in TABLES.get(table, ())]


def settings_of(values: Iterable[str]) -> list[str]:
    """Settings as options of the command line."""
    return [part for value in values for part in ("--set", value)]


# A checkpoint after every block.
CODE = (
    "import sys, scorebed.runs.stage as k; k.CHECKPOINT_SECONDS = 0.0; from scorebed.cli "
    "import main; main()"
)

Command: TypeAlias = Callable[..., "subprocess.Popen[str]"]


def train(*arguments: str | Path, method: str = "score") -> list[str]:
    """The command line of a tiny run."""
    named = ["train", "linear-gaussian", "--method", method]
    return [*named, *settings_of(tiny(method)), *map(str, arguments)]


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
