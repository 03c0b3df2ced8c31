"""Sizes that would take the machine, and options that would be ignored, are refused at once."""

from pathlib import Path

import pytest

from scorebed.cli._app import run

RUN = str(Path(__file__).parents[1] / "fixtures" / "runs-v1" / "score")
TRAIN = ["train", "linear-gaussian", "--out", "r"]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ([*TRAIN, "--repeats", "1e9"], "1,000,000,000 trainings"),
        ([*TRAIN, "--policies", "1e4", "--set", "policy_training.steps=2e9"], "sizes that take"),
        ([*TRAIN, "--workers", "1e5"], "100,000 processes"),
        (["sweep", "work", "nosuch", "--workers", "1e5"], "100,000 processes"),
        (["evaluate", RUN, "--outer", "1e15"], "sizes that take longer than a thousand years"),
        ([*TRAIN, "--dask-tls-cert", "x"], "one of them without --dask"),
        (["diagnose", RUN, "--score-kind="], "--score-kind, got '', expected FILE.py:NAME"),
        (["report", RUN, "--method={}"], "--method, got '{}', expected FILE.py:NAME"),
    ],
)
def test_it_is_refused_in_one_line_and_nothing_is_written(
    command, said, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    assert run(command) == 2
    err = capsys.readouterr().err
    assert said in err
    assert "Fix: " in err
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
