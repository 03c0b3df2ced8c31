"""Commands on clusters: those of docs/many-machines.md at a small size, and bounds by workers of
two hosts.
"""

import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from namespaces import ADDRESSES, two_namespaces
from scorebed.cli._app import run as main

distributed = pytest.importorskip("distributed")

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "many-machines.md").read_text()
RUN = ROOT / "tests" / "fixtures" / "runs-v1" / "score"
MAIN = [sys.executable, "-c", "from scorebed.cli import main; main()"]

# What makes the commands of the page small.
SMALL = {
    "location-finding": "linear-gaussian",
    "pendulum": "linear-gaussian",
    "8": "2",
    "4": "2",
    "4096": "32",
    "1e7": "30000",
    "score,pce": "random,pce",
}
SIZES = {
    "score": "steps=20 batch=8 width=8 particles=2 cloud=2",
    "policy_training": "steps=10 batch=4 monitor_every=5 monitor_inner=8",
    "evaluation": "outer=16 inner=16 select_outer=8 select_inner=8 references=false",
}
TRAIN = [f"--set={table}.{each}" for table, all_ in SIZES.items() for each in all_.split()]
OPTIONS = {
    "train": TRAIN,
    "evaluate": ["--inner", "64"],
    "bench": [
        "--set=evaluation.outer=16",
        "--set=evaluation.inner=16",
        "--set=policy_training.batch=4",
        "--set=policy_training.monitor_inner=8",
        "--set=pce.inner=3",
    ],
}


def commands() -> list[list[str]]:
    """The lines of the page that start with `scorebed`, in blocks that can be run as they are."""
    found = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    lines = [line for block in found for line in block.splitlines()]
    return [shlex.split(line)[1:] for line in lines if line.startswith("scorebed ")]


def test_the_page_has_a_command_of_every_kind():
    words = {word for command in commands() for word in command}
    assert {"train", "evaluate", "bench", "--workers", "--dask", "--slurm"} <= words


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--minutes", "1", "--workers", "2"], "--minutes, got --workers"),
        (["--dask", "tcp://127.0.0.1:9", "--slurm"], "--dask, got --workers or --slurm"),
        (["--rank", "1"], "--rank and --coordinator, got one host"),
        (["--hosts", "2", "--rank", "2", "--coordinator", "127.0.0.1:9"], "--rank, got 2"),
        (["--workers", "0"], "--workers"),
    ],
)
def test_options_that_contradict_each_other_are_refused(words, line, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "linear-gaussian", *words]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"error: {line}")
    assert said.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_commands_of_the_page_run(tmp_path):
    (tmp_path / "runs").mkdir()
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0"
    ) as cluster:
        small = SMALL | {"tcp://127.0.0.1:8786": cluster.scheduler_address}
        for command in commands():
            words = [small.get(word, word) for word in command]
            done = subprocess.run(
                [*MAIN, *words, *OPTIONS[words[0]], "--json"],
                cwd=tmp_path,
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, (command, done.stderr)
            assert json.loads(done.stdout)
    records = sorted(tmp_path.glob("runs/*/record.json"))
    assert [path.parent.name for path in records] == ["many", "on-dask"]
    one, other = (json.loads(path.read_text()) for path in records)
    assert one["lower"] == other["lower"], "the same run, by other workers"
    assert (tmp_path / "runs" / "on-slurm" / "array.sh").exists()


@pytest.mark.slow
def test_workers_of_another_host_give_the_bounds_of_this_one(tmp_path):
    run = tmp_path / "run"
    shutil.copytree(RUN, run)
    asked = [*MAIN, "evaluate", str(run), "--outer", "32", "--inner", "64", "--json"]
    alone = json.loads(subprocess.run(asked, capture_output=True, check=True).stdout)
    dask = [sys.executable, "-m", "dask"]
    address = f"tcp://{ADDRESSES[0]}:8786"
    with two_namespaces() as (first, second), contextlib.ExitStack() as stack:

        def start(name, *words):
            process = subprocess.Popen(
                ["ip", "netns", "exec", name, *dask, *words, "--no-dashboard"],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=os.environ | {"PYTHONWARNINGS": "ignore"},
            )
            stack.callback(process.wait)
            stack.callback(process.kill)

        start(first, "scheduler", "--host", ADDRESSES[0], "--port", "8786")
        start(second, "worker", address, "--nthreads", "1", "--host", ADDRESSES[1], "--no-nanny")
        done = subprocess.run(
            ["ip", "netns", "exec", first, *asked, "--dask", address],
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
    assert done.returncode == 0, done.stderr
    shared = json.loads(done.stdout)
    for values in (shared, alone):
        values.pop("seconds")
    assert shared == alone
