"""The exported policy is the one that was evaluated: the same designs as a session, without this
library.
"""

import ast
import dataclasses
import hashlib
import importlib.util
import json
import os
import subprocess
import sys
from importlib import resources
from pathlib import Path
from unittest import mock

import jax.random as jr
import numpy as np
import pytest

pytest.importorskip("flatbuffers", reason="exporting needs flatbuffers: pip install flatbuffers")
pytest.importorskip("onnx", reason="exporting needs onnx: pip install onnx")

from live_runs import make_run

import scorebed
from scorebed.baselines.myopic import Myopic
from scorebed.cli._app import run as command
from scorebed.errors import InvalidValueError, RunFolderError
from scorebed.export import jaxpr_to_onnx
from scorebed.export.folder import SEEDS, export_policy
from scorebed.runs.load import Run, load
from scorebed.session.session import Session

# A computer without scorebed and onnx: importing them fails.
ALONE = """import runpy, sys
sys.modules["scorebed"] = sys.modules["onnx"] = None
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
WITHOUT_JAX = ALONE.replace("= None", '= sys.modules["jax"] = None')
SEED = 7


def exported(place: Path, policy: str, task: str) -> tuple[Run, Path]:
    """A run that nobody had to train, and the folder that it was exported to."""
    run = load(make_run(place / f"{policy}-{task}", task, policy))
    export_policy(run, place / f"{policy}-export")
    return run, place / f"{policy}-export"


@pytest.fixture(scope="session")
def recurrent(tmp_path_factory) -> tuple[Run, Path]:
    """A recurrent policy of the pendulum, which has noise."""
    return exported(tmp_path_factory.mktemp("export"), "gru", "pendulum")


def by_client(folder: Path, log: Path, typed: str, *, seed: int = SEED, jax: bool = True):
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]),
        "PYTHONDONTWRITEBYTECODE": "1",  # the folder stays as it was written
    }
    return subprocess.run(
        [
            sys.executable,
            "-c",
            ALONE if jax else WITHOUT_JAX,
            str(folder / "client.py"),
            str(log),
            str(seed),
        ],
        input=typed,
        capture_output=True,
        text=True,
        env=environment,
        timeout=100,
    )


def lines(log: Path):
    return [json.loads(line) for line in log.read_text().splitlines()]


def outcomes(task, steps, seed=0):
    return np.random.default_rng(seed).normal(size=(steps, task.outcome_dim)).tolist()


def by_session(run, db, ys, elsewhere=None):
    """The designs that a live experiment proposes for these outcomes; `elsewhere` maps a step to
    the design used there.
    """
    found = []
    with Session.create(run, db=db, seed=SEED) as session:
        for step, y in enumerate(ys):
            found.append(session.propose().design)
            session.observe(y, (elsewhere or {}).get(step))
        if not session.state.complete:
            found.append(session.propose().design)
    return np.asarray(found)


def module_of(folder: Path, script: str):
    """A script of the folder as a module, as a user's script would import it."""
    spec = importlib.util.spec_from_file_location(script, folder / f"{script}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[script] = module
    with mock.patch.object(sys, "dont_write_bytecode", True):
        spec.loader.exec_module(module)
    return module


def walk(policy, ys):
    """Like `by_session`."""
    steps = []
    for y in ys:
        steps.append({"xi": policy.design(steps), "y": y})
    return np.asarray([*(step["xi"] for step in steps), policy.design(steps)])


@pytest.fixture(scope="session")
def client(recurrent):
    module_of(recurrent[1], "policy")
    return module_of(recurrent[1], "client")


@pytest.fixture(scope="session")
def policy(client):
    return client.ExportedPolicy(SEED)


def test_the_client_alone_gives_the_designs_of_a_session_with_its_noise_and_goes_on_where_it_was(
    recurrent, client, policy, tmp_path, monkeypatch
):
    """Designs of a policy with noise agree only if the noise is that of the session: another seed
    moves them by tenths.
    """
    run, folder = recurrent
    ys, log = outcomes(run.task, 4), tmp_path / "log.jsonl"
    typed = [" ".join(map(str, y)) for y in ys]
    typed[1] += " @ 0.25"
    first = by_client(folder, log, f"1,5\nnan 1\n1\n{typed[0]}\n{typed[1]}\n")
    assert first.stderr.count("not stored") == 3
    assert "Traceback" not in first.stderr
    assert [line["y"] for line in lines(log)] == ys[:2]
    # Opened again with another seed: the one in the file counts.
    prompts, coming = [], iter(typed[2:])

    def answer(prompt):
        prompts.append(prompt)
        if len(prompts) == 3:
            raise EOFError
        return next(coming)

    def made(seed):
        assert seed == SEED
        return policy

    monkeypatch.setattr("builtins.input", answer)
    monkeypatch.setattr(client, "ExportedPolicy", made)
    with pytest.raises(EOFError):
        client.main(log, SEED + 1)
    kept = lines(log)
    assert [line["y"] for line in kept] == ys
    wanted = by_session(run, tmp_path / "live.sqlite", ys, {1: (0.25,)})
    used = np.asarray([line["xi"] for line in kept])
    assert used[1] == [0.25]
    np.testing.assert_allclose(used[[0, 2, 3]], wanted[[0, 2, 3]], rtol=1e-5, atol=1e-6)
    assert (
        f"step 5 of 50: measure at {run.task.designs.quantities[0].name} {wanted[4][0]:.4g}"
        in prompts[-1]
    )
    assert np.ptp(wanted) > 0.1


def test_the_manifest_says_what_it_is_and_every_file_is_the_one_that_was_written(recurrent):
    run, folder = recurrent
    about = json.loads((folder / "manifest.json").read_text())
    assert (about["task"], about["horizon"], about["noise"], about["independent"]) == (
        "pendulum",
        50,
        1,
        False,
    )
    (design,) = about["designs"]
    (space,) = (run.task.designs,)
    assert (design["name"], design["unit"]) == (space.quantities[0].name, space.quantities[0].unit)
    assert (design["low"], design["high"]) == (space.low[0], space.high[0])
    assert [q["name"] for q in about["outcomes"]] == [q.name for q in run.task.outcomes]
    assert [q["unit"] for q in about["parameters"]] == [q.unit for q in run.task.prior.quantities]
    there = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}
    assert about["files"] == {name: there[name] for name in about["files"]}
    assert set(there) == set(about["files"]) | {"manifest.json", "README.md", "SHA256SUMS"}
    sums = dict(
        reversed(line.split("  ")) for line in (folder / "SHA256SUMS").read_text().splitlines()
    )
    assert sums == {name: digest for name, digest in there.items() if name != "SHA256SUMS"}
    kinds = {path.suffix for path in folder.iterdir()}
    assert kinds == {
        ".jax",
        ".onnx",
        ".safetensors",
        ".py",
        ".json",
        ".md",
        "",
    }  # nothing that runs code when it is read
    assert not any(
        str(Path(__file__).parents[2]).encode() in path.read_bytes() for path in folder.iterdir()
    )


def test_the_onnx_form_gives_the_same_designs_for_the_seeds_that_it_has(recurrent, tmp_path):
    pytest.importorskip(
        "onnxruntime", reason="the ONNX form needs onnxruntime: pip install onnxruntime"
    )
    run, folder = recurrent
    ys = outcomes(run.task, 3)
    typed = "".join(" ".join(map(str, y)) + "\n" for y in ys)
    log = tmp_path / "log.jsonl"
    by_client(folder, log, typed, jax=False)
    wanted = by_session(run, tmp_path / "live.sqlite", ys)
    np.testing.assert_allclose(
        [line["xi"] for line in lines(log)], wanted[:3], rtol=1e-4, atol=1e-5
    )
    refused = by_client(folder, tmp_path / "other.jsonl", typed, seed=SEEDS, jax=False)
    assert f"0 to {SEEDS - 1}" in refused.stderr
    assert not (tmp_path / "other.jsonl").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "task"),
    [
        ("dad", "location-finding"),
        ("attention", "gravimetry"),
        ("static", "pendulum"),
        ("random", "location-finding"),
        ("gru", "double-link"),
    ],
)
def test_every_policy_is_exported_as_it_is(policy, task, tmp_path):
    run, folder = exported(tmp_path, policy, task)
    ys = outcomes(run.task, 5)
    wanted = by_session(run, tmp_path / "live.sqlite", ys)
    module = module_of(folder, "policy")
    np.testing.assert_allclose(walk(module.ExportedPolicy(SEED), ys), wanted, rtol=1e-5, atol=1e-6)
    pytest.importorskip(
        "onnxruntime", reason="the ONNX form needs onnxruntime: pip install onnxruntime"
    )
    np.testing.assert_allclose(
        walk(module.ExportedPolicy(SEED, module.by_onnx), ys), wanted, rtol=1e-4, atol=1e-5
    )


def test_a_trial_that_failed_uses_its_noise_and_leaves_no_memory(
    client, policy, tmp_path, monkeypatch, capsys
):
    failed, first = policy.design([{"xi": [0.25], "y": None}]), policy.design([])
    with monkeypatch.context() as later:
        later.setattr(policy, "noise", policy.noise[1:])
        assert failed == policy.design([]) != first
    # Where a step depends on the one before there is no failed trial, as in a session.
    log, typed = tmp_path / "log.jsonl", iter(["s", "0.1 0.2", "s"])
    monkeypatch.setattr("builtins.input", lambda _: next(typed))
    monkeypatch.setattr(client, "ExportedPolicy", lambda _: policy)
    with pytest.raises(StopIteration):
        client.main(log, 0)
    assert [line["y"] for line in lines(log)] == [[0.1, 0.2]]
    assert capsys.readouterr().err.count("not stored") == 2
    monkeypatch.setitem(client.ABOUT, "independent", True)
    typed = iter(["s"])
    with pytest.raises(StopIteration):
        client.main(log, 0)
    assert [line["y"] for line in lines(log)] == [[0.1, 0.2], None]


def test_the_client_is_short_enough_to_be_read():
    """At most thirty lines of code, not counting empty lines and docstrings."""
    text = (resources.files("scorebed.export") / "client.py").read_text()
    owners = [
        node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Module | ast.FunctionDef)
    ]
    told = [node.body[0] for node in owners if ast.get_docstring(node)]
    words = {line for node in told for line in range(node.lineno, node.end_lineno + 1)}
    assert (
        sum(
            bool(line.strip()) and i not in words
            for i, line in enumerate(text.splitlines(), start=1)
        )
        <= 30
    )


def test_a_policy_without_an_onnx_form_is_exported_without_it_and_the_reason_is_given(
    recurrent, tmp_path, monkeypatch, capsys
):
    run, _ = recurrent
    monkeypatch.delitem(jaxpr_to_onnx.ONE_TO_ONE, "tanh")
    assert command(["export", str(run.path), "--out", str(tmp_path / "export")]) == 0
    assert "no ONNX, because the operation 'tanh' has no ONNX form" in capsys.readouterr().out
    about = json.loads((tmp_path / "export" / "manifest.json").read_text())
    assert about["onnx"]["programs"] == []
    assert "tanh" in about["onnx"]["reason"]
    assert "tanh" in (tmp_path / "export" / "README.md").read_text()
    names = {path.name for path in (tmp_path / "export").iterdir()}
    assert {"design.jax", "client.py"} <= names
    assert not names & {"design.onnx", "noise.safetensors"}
    refused = by_client(tmp_path / "export", tmp_path / "log.jsonl", "", jax=False)
    assert "no ONNX form: the operation 'tanh'" in refused.stderr


def test_a_folder_that_exists_is_left_as_it_is(recurrent, tmp_path):
    """`sb.export_policy` is the function of the command, and takes a path for a run."""
    assert scorebed.export_policy is export_policy
    run, folder = recurrent
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    (tmp_path / "empty").mkdir()
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    for there in (folder, tmp_path / "empty", tmp_path / "dangling"):
        with pytest.raises(RunFolderError, match="ever overwritten"):
            export_policy(str(run.path), str(there))
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert not list((tmp_path / "empty").iterdir())


def test_bad_input_is_one_line_and_writes_nothing(recurrent, tmp_path, capsys):
    run, folder = recurrent
    for arguments, words in (
        ([str(tmp_path / "nowhere")], "no such folder"),
        ([str(tmp_path)], "no config.toml in it"),
        ([str(run.path), "--out", str(folder)], "ever overwritten"),
        ([str(run.path), "--out", str(tmp_path / "no" / "such")], "No such file"),
        ([str(run.path), "--outt", "x"], "did you mean '--out'"),
    ):
        assert command(["export", *arguments]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("error: ")
        assert err.count("\n") == 1
        assert words in err
    assert not list(tmp_path.iterdir())


def test_without_onnx_the_fix_is_one_line_and_nothing_is_written(
    recurrent, tmp_path, monkeypatch, capsys
):
    run, _ = recurrent
    monkeypatch.delitem(sys.modules, "scorebed.export.jaxpr_to_onnx")
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert command(["export", str(run.path), "--out", str(tmp_path / "export")]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert "no package 'onnx'" in err
    assert "pip install 'scorebed[export]'" in err
    assert not list(tmp_path.iterdir())


def test_the_folder_is_made_in_that_of_the_run_if_no_other_is_named(recurrent, capsys):
    run, _ = recurrent
    assert command(["export", str(run.path), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["folder"] == str(run.path / "export")
    assert answer["format"] == "scorebed-export"
    assert (run.path / "export" / "client.py").exists()


def test_myopic_designs_are_refused(recurrent):
    run, _ = recurrent
    myopic = dataclasses.replace(run, policy=Myopic(run.task, key=jr.key(0)))
    with pytest.raises(InvalidValueError, match="myopic designs, which search"):
        export_policy(myopic, run.path / "myopic")
    assert not (run.path / "myopic").exists()
