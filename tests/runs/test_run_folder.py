"""Run folders: never overwritten, one owner, no record lost or twice."""

import concurrent.futures
import dataclasses
import json
import os
import signal
import stat
import time

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from scorebed.errors import DiskFullError, FolderInUseError, RunFolderError, ScorebedError
from scorebed.runs import folder as folder_module
from scorebed.runs.config import from_values
from scorebed.runs.folder import CONFIG, LOCK, METRICS, RunFolder


@pytest.fixture
def run(tmp_path, config):
    with RunFolder.create(tmp_path / "run", config) as folder:
        yield folder


def record(stage: str, step: int, **more) -> dict:
    return {"stage": stage, "step": step, **more}


# --- making and opening


def test_a_new_run_holds_its_configuration(tmp_path, config):
    with RunFolder.create(tmp_path / "a", config):
        pass
    assert RunFolder.open(tmp_path / "a").config() == config


def test_a_folder_that_exists_is_never_touched(tmp_path, config):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "thesis.tex").write_text("mine")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    for name in ("a", "file", "dangling", "."):
        with pytest.raises(
            RunFolderError, match="got one that exists, expected a new one"
        ) as caught:
            RunFolder.create(tmp_path / name, config)
        assert "\n" not in str(caught.value)
    assert [p.name for p in (tmp_path / "a").iterdir()] == ["thesis.tex"]
    assert not (tmp_path / "nowhere").exists()


def test_a_missing_or_unwritable_folder_above_is_told_in_one_line(tmp_path, config, monkeypatch):
    with pytest.raises(
        RunFolderError, match=r"got a missing folder above it, expected the folder .*/b\. Fix: make"
    ):
        RunFolder.create(tmp_path / "b" / "c", config)
    (tmp_path / "file").write_text("x")
    with pytest.raises(RunFolderError, match="missing folder above it"):
        RunFolder.create(tmp_path / "file" / "c", config)
    monkeypatch.setattr(
        type(tmp_path), "mkdir", _refuse
    )  # permissions do not hold root back, who may run this test
    for create in (RunFolder.create, RunFolder.create_next):
        with pytest.raises(
            RunFolderError, match="got 'Permission denied', expected a path that can be"
        ) as caught:
            create(tmp_path / "new", config)
        assert "\n" not in str(caught.value)


def _refuse(*_, **__):
    raise PermissionError(13, "Permission denied")


def test_a_run_that_cannot_be_begun_leaves_no_folder(tmp_path, config, monkeypatch):
    def full(path, data):
        raise DiskFullError(str(path), got="0 bytes", expected=f"{len(data)} bytes", fix="x")

    monkeypatch.setattr(folder_module, "replace_file", full)
    with pytest.raises(DiskFullError):
        RunFolder.create(tmp_path / "a", config)
    assert list(tmp_path.iterdir()) == []


def test_names_count_up_to_the_first_that_is_free_even_in_a_race(tmp_path, values):
    config = from_values({**values, "task": "models/My bridge.py:Bridge_2"})
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "bridge-2-score-3").write_text("taken")
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        folders = list(
            pool.map(lambda _: RunFolder.create_next(tmp_path / "runs", config), range(12))
        )
    assert {f.path.name for f in folders} == {f"bridge-2-score-{n}" for n in range(1, 14) if n != 3}
    assert all(f.config() == config for f in folders)


def test_the_folder_of_runs_is_made_when_it_is_missing(tmp_path, config):
    with RunFolder.create_next(tmp_path / "deep" / "runs", config) as run:
        assert run.path == tmp_path / "deep" / "runs" / "pendulum-score-1"


def test_a_method_from_a_file_is_called_by_its_name_alone(tmp_path, config):
    theirs = dataclasses.replace(config, method="methods/mine.py:MyPCE")
    with RunFolder.create_next(tmp_path, theirs) as run:
        assert run.path == tmp_path / "pendulum-mypce-1"


def test_a_run_folder_that_is_none_is_told_in_one_line(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    for name, why in (
        ("empty", "no config.toml in it"),
        ("file", "a file"),
        ("gone", "no such folder"),
    ):
        with pytest.raises(
            RunFolderError, match=f"got {why}, expected a folder with a config.toml"
        ) as caught:
            RunFolder.open(tmp_path / name)
        assert "\n" not in str(caught.value)
    assert list((tmp_path / "empty").iterdir()) == []


def test_a_damaged_configuration_is_told_in_one_line(run):
    for text in ("a = [", "format = 3", 'task = "pendulum"', "\x00"):
        (run.path / CONFIG).write_text(text)
        with pytest.raises(ScorebedError) as caught:
            run.config()
        assert "\n" not in str(caught.value)


# --- owning


OWN = """
import os, sys, time
from pathlib import Path
from scorebed.runs.folder import RunFolder

# A child that is slow to start: when its parent is killed, it has yet to let go of the lock.
os.register_at_fork(after_in_child=lambda: time.sleep(0.15))
run = RunFolder.open(Path(sys.argv[1])).acquire()
assert "jax" not in sys.modules  # a folder is opened, or refused, before the slow imports
child = os.fork()
if child:
    print(child, flush=True)
time.sleep(60)
"""


def test_one_process_owns_a_folder_until_it_is_killed(tmp_path, config, start_python):
    with RunFolder.create(tmp_path / "run", config) as run:
        run.append_metrics(record("score", 1))
    owner = start_python(OWN, run.path)
    child = int(owner.stdout.readline())
    try:
        began = time.monotonic()
        with pytest.raises(
            FolderInUseError, match=rf"process {owner.pid} is writing to.* Fix: wait"
        ) as caught:
            run.acquire()
        assert time.monotonic() - began < 1
        assert "\n" not in str(caught.value)
        assert RunFolder.open(run.path).read_metrics() == [
            record("score", 1)
        ]  # reading needs no ownership
        with pytest.raises(ScorebedError, match="got a folder opened for reading"):
            run.append_metrics(record("score", 2))
        owner.send_signal(signal.SIGKILL)
        owner.wait()
        run.acquire()  # although a child of the owner lives on
        run.append_metrics(record("score", 2))
        run.release()
    finally:
        os.kill(child, signal.SIGKILL)


def test_two_owners_in_one_process_are_two_and_release_lets_the_other_in(run):
    other = RunFolder.open(run.path)
    with pytest.raises(FolderInUseError, match=f"process {os.getpid()} "):
        other.acquire()
    run.acquire()  # again: nothing happens
    run.release()
    with other.acquire() as owner:
        owner.write_json_atomic("record.json", {})


def test_an_owner_that_has_not_yet_written_its_id_is_waited_for(run):
    (run.path / LOCK).write_text("not a number")
    began = time.monotonic()
    with pytest.raises(FolderInUseError, match="process of unknown id"):
        RunFolder.open(run.path).acquire()
    assert 0.25 < time.monotonic() - began < 1


@pytest.mark.parametrize(
    "write",
    [
        lambda run: run.write_json_atomic("a.json", {}),
        lambda run: run.write_env(),
        lambda run: run.append_metrics(record("score", 1)),
        lambda run: run.truncate_metrics("score", 1),
    ],
)
def test_only_the_owner_writes(run, write):
    before = sorted(p.name for p in run.path.iterdir())
    with pytest.raises(ScorebedError, match=r"Fix: call acquire\(\) first"):
        write(RunFolder.open(run.path))
    assert sorted(p.name for p in run.path.iterdir()) == before


# --- metrics


def test_metrics_come_back_in_order_with_null_for_what_is_not_finite(run):
    assert run.read_metrics() == []
    run.append_metrics(record("score", 1, loss=0.5))
    run.append_metrics(record("policy-0", 1, lower=float("nan"), note="a\nb"))
    run.append_metrics(record("score", 2, loss=float("inf")))
    assert run.read_metrics("score") == [
        record("score", 1, loss=0.5),
        record("score", 2, loss=None),
    ]
    assert run.read_metrics()[1] == record("policy-0", 1, lower=None, note="a\nb")
    assert len((run.path / METRICS).read_bytes().splitlines()) == 3


@pytest.mark.parametrize(
    "bad",
    [{}, {"stage": "score"}, {"step": 1}, {"stage": 1, "step": 1}, {"stage": "a", "step": 1.5}],
)
def test_a_record_without_stage_or_step_is_refused(run, bad):
    with pytest.raises(ScorebedError, match="a record of metrics, got stage="):
        run.append_metrics(bad)


@settings(deadline=None, max_examples=30)
@given(kept=st.integers(0, 6), torn=st.integers(0, 40), resumed=st.integers(-1, 6))
def test_a_curve_has_no_gap_and_no_duplicate_after_any_crash(tmp_path_factory, kept, torn, resumed):
    run = _fresh(tmp_path_factory)
    resumed = min(resumed, kept)
    with run.acquire():
        run.append_metrics(record("other", 99))
        for step in range(kept + 1):
            run.append_metrics(record("score", step))
    with (run.path / METRICS).open("ab") as file:  # the crash: part of one more line
        file.write((json.dumps(record("score", kept + 1, loss=0.125)) + "\n").encode()[:torn])
    whole = torn > len(json.dumps(record("score", kept + 1, loss=0.125)))
    assert len(run.read_metrics("score")) == kept + 1 + whole
    with run.acquire():
        run.truncate_metrics("score", resumed)
        for step in range(resumed + 1, 9):
            run.append_metrics(record("score", step))
    assert [r["step"] for r in run.read_metrics("score")] == list(range(9))
    assert run.read_metrics("other") == [record("other", 99)]


def _fresh(factory) -> RunFolder:
    path = factory.mktemp("run")
    (path / CONFIG).touch()

    def fail(warning):
        assert warning.startswith("The last line of")  # of a crash, before it is cut off

    return RunFolder.open(path, on_warning=fail)


def test_a_line_that_cannot_be_read_is_skipped_with_a_warning(run):
    warnings = []
    run.append_metrics(record("score", 1))
    with (run.path / METRICS).open("ab") as file:
        file.write(b'\x00\x00\n{"stage": "score"}\n[]\n\n{"stage": "score", "step": NaN}\n')
    run.append_metrics(record("score", 2))
    reader = RunFolder.open(run.path, on_warning=warnings.append)
    assert [r["step"] for r in reader.read_metrics()] == [1, 2]
    assert [w.split(" of ")[0] for w in warnings] == [f"Skipped line {n}" for n in (2, 3, 4, 5, 6)]


def test_a_full_disk_leaves_no_half_line(run, monkeypatch):
    run.append_metrics(record("score", 1))

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(
        DiskFullError, match=r"writing .*metrics\.jsonl, got .* expected room for 108 bytes"
    ):
        run.append_metrics(record("score", 2))
    monkeypatch.undo()
    run.append_metrics(record("score", 3))
    assert [r["step"] for r in run.read_metrics()] == [1, 3]


# --- other files


def test_json_files_are_strict_and_replaced_at_once(run):
    run.write_json_atomic("record.json", {"lower": 1.5, "upper": float("nan"), "seeds": (1, 2)})
    assert run.read_json("record.json") == {"lower": 1.5, "upper": None, "seeds": [1, 2]}
    with pytest.raises(ScorebedError, match="a value for a JSON file"):
        run.write_json_atomic("record.json", {"x": object()})
    assert run.read_json("record.json")["lower"] == 1.5
    mode = stat.S_IMODE((run.path / "record.json").stat().st_mode)
    assert mode == 0o666 & ~_umask()
    assert not list(run.path.glob(".tmp-*"))


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_a_file_that_is_being_replaced_stays_when_the_disk_is_full(run, monkeypatch):
    run.write_json_atomic("record.json", {"n": 1})

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DiskFullError, match=r"bytes free, expected room for 93 bytes"):
        run.write_json_atomic("record.json", {"n": 2})
    monkeypatch.undo()
    assert run.read_json("record.json") == {"n": 1}
    assert not list(run.path.glob(".tmp-*"))


@pytest.mark.parametrize(
    "name", ["../x.json", "/x.json", "a/b.json", ".x.json", "x.toml", "x.json\n", ""]
)
def test_names_of_files_and_stages_stay_inside_of_the_folder(run, name):
    with pytest.raises(ScorebedError, match="the name of a JSON file, got"):
        run.write_json_atomic(name, {})
    with pytest.raises(ScorebedError, match="the name of a stage, got"):
        run.checkpoint_folder(name)
    assert run.checkpoint_folder("policy-3") == run.path / "checkpoints" / "policy-3"


def test_a_json_file_that_is_missing_or_damaged_is_told_in_one_line(run):
    (run.path / "bad.json").write_text('{"a": 1e999}\n{')
    for name in ("gone.json", "bad.json"):
        with pytest.raises(RunFolderError, match=name) as caught:
            run.read_json(name)
        assert "\n" not in str(caught.value)


def test_leftovers_of_a_killed_owner_are_cleared_by_the_next_one(run):
    (run.path / ".tmp-record.json-12ab").write_text("half")
    RunFolder.open(run.path).read_metrics()
    assert list(run.path.glob(".tmp-*"))
    run.release()
    run.acquire()
    assert not list(run.path.glob(".tmp-*"))


def test_the_environment_names_versions_and_no_host_and_no_path(run):
    run.write_env()
    env = run.read_json("env.json")
    assert {"python", "jax", "equinox", "scorebed", "platform", "device", "cores"} <= set(env)
    assert env["cores"]["machine"] >= env["cores"]["usable"] >= 1
    text = (run.path / "env.json").read_text()
    assert os.uname().nodename not in text
    assert os.sep not in text
