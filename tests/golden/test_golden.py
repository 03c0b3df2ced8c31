"""What tiny runs compute, committed: counts exactly, parameters and bounds within the tolerances of
`compare.py`.

`golden.json` was computed as the suite computes, with little optimisation by XLA. When a change of
numbers is meant, write it anew and name the change in the changelog under *Numbers changed*:

    SCOREBED_WRITE_GOLDEN=1 python -m pytest tests/golden/test_golden.py -m ''

`record.py` has more and larger runs, and compares two commits on one machine.
"""

import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from cases import TABLES, TRAINS
from compare import differences
from record import Answer, of_run, plain

from scorebed.cli import main

PATH = Path(__file__).with_name("golden.json")

RUNS = [
    "budget/pce",
    "linear-gaussian/nmc",
    "budget/mlmc",
    "linear-gaussian/random",
]
# Those that take longer to compile. `halvings` is the method score, with three restarts of which
# one is chosen.
SLOW = [
    "halvings",
    "linear-gaussian/varmarg",
    "linear-gaussian/varpost",
    "linear-gaussian/jointvarpost",
    "linear-gaussian/jointscore",
    "budget/iosmc",
    "linear-gaussian/static",
    "linear-gaussian/myopic",
]


@pytest.fixture
def answer(capsys):
    """answer(words…) → how a command line ended in this process, and what it wrote."""

    def carry_out(*words: str) -> Answer:
        with pytest.raises(SystemExit) as ended:
            main(words)
        return Answer(int(ended.value.code or 0), *capsys.readouterr())

    return carry_out


def check(name: str, case: dict) -> None:
    """Hold a case beside the committed one, or commit it."""
    case = {kind: case[kind] for kind in ("exact", "bounds", "numbers", "arrays") if case.get(kind)}
    for leaf in case.get("arrays", {}).values():
        del leaf["sha256"]
        leaf.pop("first", None)
    if os.environ.get("SCOREBED_WRITE_GOLDEN"):
        golden = json.loads(PATH.read_text()) if PATH.exists() else {}
        golden[name] = _rounded(case)
        lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in sorted(golden.items())]
        PATH.write_text("{\n" + ",\n".join(lines) + "\n}\n")
        pytest.skip("written, not compared")
    wrong = [
        f"{each.key}: {each.what}"
        for each in differences(json.loads(PATH.read_text())[name], case)
        if not each.allowed
    ]
    assert wrong == []


def _rounded(value: Any) -> Any:
    """Floats to nine digits, which tell every one of single precision."""
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return float(f"{value:.9g}") if isinstance(value, float) else value


@pytest.mark.parametrize(
    "name", [*RUNS, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)]
)
def test_a_run_computes_what_it_did(answer, tmp_path, name):
    path = tmp_path / "run"
    found = answer(*TRAINS[name].command(), "--out", str(path), "--json")
    assert found.code == 0, found.err
    check(name, of_run(path, found, small=8))


@pytest.mark.parametrize("table", TABLES)
def test_a_table_of_budgets_has_the_same_totals(answer, table):
    check(f"nle/{table}", plain(json.loads(answer("nle", table, "--json").out)))


def test_a_session_is_what_it_was(answer, tmp_path, monkeypatch):
    path = tmp_path / "run"
    assert answer(*TRAINS["budget/pce"].command(), "--out", str(path), "--json").code == 0
    monkeypatch.setattr(sys, "stdin", io.StringIO("0.5\nu\n0.7\n-0.4 @ 1.25\nc 1 0.6\n0.2\nq\n"))
    options = [
        "--db",
        str(tmp_path / "live.sqlite"),
        "--experiment",
        "bench",
        "--seed",
        "3",
        "--json",
    ]
    check("session", plain(json.loads(answer("live", str(path), *options).out)))
