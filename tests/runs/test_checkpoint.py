"""Checkpoints: what is saved is intact, and what is damaged is found."""

import errno
import itertools
import os
import pathlib
import random
import resource
import signal
import time

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

from scorebed.errors import (
    CheckpointError,
    DiskFullError,
    LeafMismatchError,
    NewerFormatError,
    ScorebedError,
)
from scorebed.runs import checkpoint
from scorebed.runs.checkpoint import LEAVES, MANIFEST, Checkpoints, milestones
from scorebed.training.fit import fit, gradient_of, start

LIKE = {"w": np.zeros(6, "float32"), "step": np.zeros((), "int32")}


def state(step: int) -> dict:
    """A state that says which step it is of, in every number."""
    return {"w": np.full(6, step, "float32"), "step": np.asarray(step, "int32")}


def step_of(found) -> int:
    """The step of a checkpoint whose arrays all agree with it."""
    assert found is not None
    assert (found.tree["w"] == found.step).all()
    assert found.tree["step"] == found.step
    return found.step


@pytest.fixture
def warnings_() -> list[str]:
    return []


@pytest.fixture
def checkpoints(tmp_path, warnings_) -> Checkpoints:
    return Checkpoints(tmp_path / "checkpoints" / "score", on_warning=warnings_.append)


def test_nothing_saved_is_nothing_found(checkpoints, warnings_):
    assert checkpoints.latest(LIKE) is None
    assert checkpoints.steps() == warnings_ == []
    assert not checkpoints.folder.exists()  # reading makes nothing


def test_the_last_one_comes_back_with_what_was_added(checkpoints, warnings_):
    for step in (1, 2):
        path = checkpoints.save(
            step, state(step), {"loss": [0.5, float("nan")], "stage": "score", "n": step}
        )
        assert path == checkpoints.folder / f"step-{step:09d}"
        assert sorted(p.name for p in path.iterdir()) == [LEAVES, MANIFEST]
    found = checkpoints.latest(LIKE)
    assert step_of(found) == 2
    assert found.extra == {"loss": [0.5, None], "stage": "score", "n": 2}
    assert step_of(checkpoints.load(1, LIKE)) == 1
    assert warnings_ == []


def test_all_is_on_the_disk_before_the_name_and_the_name_before_save_returns(
    checkpoints, monkeypatch
):
    checkpoints.save(1, state(1))
    events, fsync, rename = [], os.fsync, os.rename

    def traced_fsync(descriptor):
        events.append(pathlib.Path(os.readlink(f"/proc/self/fd/{descriptor}")))
        fsync(descriptor)

    def traced_rename(source, target):
        events.append("rename")
        rename(source, target)

    monkeypatch.setattr(os, "fsync", traced_fsync)
    monkeypatch.setattr(os, "rename", traced_rename)
    checkpoints.save(2, state(2))
    temporary = events[2]
    assert temporary.name.startswith(".tmp-")
    assert events == [
        temporary / LEAVES,
        temporary / MANIFEST,
        temporary,
        "rename",
        checkpoints.folder,
    ]


def test_the_last_three_and_the_milestones_stay(checkpoints):
    saved = []
    for step in itertools.chain(range(3, 90, 3), range(90, 160, 7)):
        checkpoints.save(step, state(step))
        saved.append(step)
        # The rule, from all that was ever saved: pruning must not depend on what was pruned before.
        marks = (1, 2, 5, 10, 20, 50, 100)
        first = {next(s for s in saved if s >= mark) for mark in marks if mark <= step}
        assert set(checkpoints.steps()) == first | set(saved[-3:])
    assert checkpoints.steps() == [3, 6, 12, 21, 51, 104, 139, 146, 153]


def test_milestones_are_the_first_at_or_after_round_numbers():
    assert milestones([]) == milestones([0]) == set()
    assert milestones([0, 1, 2, 3, 4, 5, 6]) == {1, 2, 5}
    assert milestones([100, 200, 300, 400, 500, 600]) == {100, 200, 500}
    assert milestones([7]) == {7}


def flip(data: bytes, bit: int) -> bytes:
    flipped = bytearray(data)
    flipped[bit // 8] ^= 1 << bit % 8
    return bytes(flipped)


@pytest.mark.parametrize("name", [LEAVES, MANIFEST])
def test_a_flipped_bit_anywhere_is_found_and_the_one_before_is_used(checkpoints, warnings_, name):
    for step in (1, 2):
        checkpoints.save(step, state(step), {"n": step})
    path = checkpoints.folder / "step-000000002" / name
    data = path.read_bytes()
    for bit in random.Random(0).sample(range(8 * len(data)), 150):
        path.write_bytes(flip(data, bit))
        warnings_.clear()
        assert step_of(checkpoints.latest(LIKE)) == 1, bit
        assert len(warnings_) == 1
        assert "Skipped a damaged checkpoint" in warnings_[0]
        assert "step-000000002" in warnings_[0]
    path.write_bytes(data)
    assert step_of(checkpoints.latest(LIKE)) == 2


@pytest.mark.parametrize("name", [LEAVES, MANIFEST])
def test_a_file_cut_short_lengthened_or_gone_is_found(checkpoints, warnings_, name):
    for step in (1, 2):
        checkpoints.save(step, state(step))
    path = checkpoints.folder / "step-000000002" / name
    data = path.read_bytes()
    for damaged in [data[:n] for n in range(0, len(data), 11)] + [
        data[:-1],
        data + b"x",
        data + b"}",
        None,
    ]:
        path.unlink() if damaged is None else path.write_bytes(damaged)
        warnings_.clear()
        assert step_of(checkpoints.latest(LIKE)) == 1
        assert len(warnings_) == 1


def test_the_arrays_of_one_step_under_the_name_of_another_are_found(checkpoints):
    for step in (1, 2):
        checkpoints.save(step, state(step))
    for name in (LEAVES, MANIFEST):
        (checkpoints.folder / "step-000000002" / name).write_bytes(
            (checkpoints.folder / "step-000000001" / name).read_bytes()
        )
    assert step_of(checkpoints.latest(LIKE)) == 1


def test_when_none_is_intact_the_stage_starts_again_and_says_so(checkpoints, warnings_):
    checkpoints.save(1, state(1))
    (checkpoints.folder / "step-000000001" / LEAVES).write_bytes(b"")
    assert checkpoints.latest(LIKE) is None
    assert "starts again" in warnings_[-1]


def test_damage_does_not_push_intact_ones_out(checkpoints):
    for step in (210, 220, 230, 240, 250):
        checkpoints.save(step, state(step))
    for step in (240, 250):
        (checkpoints.folder / f"step-{step:09d}" / LEAVES).write_bytes(b"")
    resumed = Checkpoints(checkpoints.folder, on_warning=lambda _: None)
    assert step_of(resumed.latest(LIKE)) == 230
    resumed.save(235, state(235))
    assert resumed.steps() == [
        210,
        230,
        235,
        240,
        250,
    ]  # counted with the damaged ones, 230 would have gone
    assert step_of(resumed.latest(LIKE)) == 235
    resumed.save(240, state(240))
    resumed.save(250, state(250))
    assert step_of(resumed.latest(LIKE)) == 250
    assert resumed.steps() == [210, 235, 240, 250]


def test_a_step_saved_twice_stays_as_it_was_and_other_arrays_for_it_are_refused(checkpoints):
    path = checkpoints.save(5, state(5), {"clock": 1})
    before = path.stat().st_ino
    checkpoints.save(5, state(5), {"clock": 2})
    assert path.stat().st_ino == before
    with pytest.raises(ScorebedError, match="got others than it holds"):
        checkpoints.save(5, state(6))
    assert step_of(checkpoints.latest(LIKE)) == 5


def test_a_template_that_does_not_fit_and_a_newer_format_are_errors_not_damage(
    checkpoints, warnings_
):
    for step in (1, 2):
        checkpoints.save(step, state(step))
    with pytest.raises(LeafMismatchError, match=r"'w' of float32\[6\] for float32\[7\]"):
        checkpoints.latest(LIKE | {"w": np.zeros(7, "float32")})
    manifest = checkpoints.folder / "step-000000002" / MANIFEST
    newer = {"format": 2, "step": 2, "files": {}, "extra": {}}
    manifest.write_bytes(checkpoint._seal(newer))
    with pytest.raises(NewerFormatError, match="got format 2, expected at most format 1"):
        checkpoints.latest(LIKE)
    assert warnings_ == []


def test_bad_arguments_write_nothing(checkpoints):
    with pytest.raises(ScorebedError, match="the step of a checkpoint, got -1"):
        checkpoints.save(-1, state(1))
    with pytest.raises(ScorebedError, match="a value for a JSON file"):
        checkpoints.save(1, state(1), {"bad": object()})
    with pytest.raises(CheckpointError, match="No such file"):
        checkpoints.load(1, LIKE)
    assert not checkpoints.folder.exists()


def test_leftovers_of_a_crash_are_ignored_and_cleared_away(checkpoints):
    checkpoints.save(1, state(1))
    leftover = checkpoints.folder / ".tmp-step-000000002-abcd"
    leftover.mkdir()
    (leftover / LEAVES).write_bytes(b"half")
    stranger = checkpoints.folder / "notes.txt"
    stranger.write_text("mine")
    assert step_of(checkpoints.latest(LIKE)) == 1
    assert leftover.exists()  # reading changes nothing
    checkpoints.save(2, state(2))
    assert not leftover.exists()
    assert stranger.exists()


def test_a_full_disk_keeps_the_last_good_one_and_says_how_much_was_needed(checkpoints, monkeypatch):
    checkpoints.save(1, state(1))
    needed = sum(p.stat().st_size for p in (checkpoints.folder / "step-000000001").iterdir())

    def write(path, data):
        path.write_bytes(data[: len(data) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(checkpoint, "write_new", write)
    with pytest.raises(
        DiskFullError, match=rf"bytes free, expected room for {needed} bytes\. Fix: "
    ) as caught:
        checkpoints.save(2, state(2))
    assert "\n" not in str(caught.value)
    monkeypatch.undo()
    assert [p.name for p in checkpoints.folder.iterdir()] == [
        "step-000000001"
    ]  # nothing half done takes the space
    assert step_of(checkpoints.latest(LIKE)) == 1


def test_a_limit_on_the_size_of_files_is_a_full_disk(checkpoints):
    checkpoints.save(1, state(1))
    large = {"w": np.zeros(20_000, "float32")}
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, hard))
    try:
        with pytest.raises(DiskFullError, match=r"expected room for 8\d{4} bytes"):
            checkpoints.save(2, large)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert step_of(checkpoints.latest(LIKE)) == 1
    checkpoints.save(2, state(2))
    assert step_of(checkpoints.latest(LIKE)) == 2


def test_an_interrupt_while_saving_leaves_nothing_half_done(checkpoints, monkeypatch):
    checkpoints.save(1, state(1))

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(checkpoint, "write_new", interrupted)
    with pytest.raises(KeyboardInterrupt):
        checkpoints.save(2, state(2))
    assert [p.name for p in checkpoints.folder.iterdir()] == ["step-000000001"]


SAVE_FOREVER = """
import itertools, sys
from pathlib import Path
import numpy as np
from scorebed.runs.checkpoint import Checkpoints

like = {"w": np.zeros(100_000, "float32")}
warn = lambda text: print("warning", text, flush=True)
checkpoints = Checkpoints(Path(sys.argv[1]), on_warning=warn)
found = checkpoints.latest(like)
for step in itertools.count(found.step + 1 if found else 1):
    checkpoints.save(step, {"w": np.full(100_000, step, "float32")}, {"n": step})
    print(step, flush=True)
"""


def test_a_process_killed_at_any_moment_leaves_every_acknowledged_checkpoint(
    tmp_path, start_python
):
    like = {"w": np.zeros(100_000, "float32")}
    moments, reached = random.Random(1), 0
    for _ in range(3):
        process = start_python(SAVE_FOREVER, tmp_path / "c")
        lines = [process.stdout.readline()]
        time.sleep(moments.uniform(0.0, 0.3))
        process.send_signal(signal.SIGKILL)
        lines += process.stdout.readlines()
        acknowledged = [int(line) for line in lines]  # a warning would be no number
        warned: list[str] = []
        found = Checkpoints(tmp_path / "c", on_warning=warned.append).latest(like)
        assert found is not None
        assert warned == []
        assert found.step in (
            acknowledged[-1],
            acknowledged[-1] + 1,
        )  # saved, but killed before it could say so
        assert found.extra == {"n": found.step}
        assert (found.tree["w"] == found.step).all()
        assert found.step > reached
        reached = found.step


# A child is ended, without any clearing up, just before its n-th touch of the file system, for
# every n there is.
CRASH_EVERYWHERE = """
import os, shutil, sys
from pathlib import Path
import numpy as np
from scorebed.runs.checkpoint import Checkpoints

TOUCHES = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir"}
root = Path(sys.argv[1])

def crash_at(touch):
    def hook(event, arguments):
        nonlocal touch
        if event in TOUCHES and str(root) in str(arguments):
            touch -= 1
            if touch < 0:
                os._exit(9)
    sys.addaudithook(hook)

def tree(step):
    return {"w": np.full(5, step, "float32")}

before = root / "before"
for step in (60, 70, 80, 90):
    Checkpoints(before).save(step, tree(step))
for touch in range(100):
    folder = root / str(touch)
    shutil.copytree(before, folder)
    child = os.fork()
    if child == 0:
        crash_at(touch)
        Checkpoints(folder).save(95, tree(95))
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    warned = []
    found = Checkpoints(folder, on_warning=warned.append).latest(tree(0))
    assert (found.tree["w"] == found.step).all() and not warned, (touch, warned)
    for step in Checkpoints(folder).steps():  # nothing half removed stands under its name either
        Checkpoints(folder).load(step, tree(0))
    Checkpoints(folder).save(99, tree(99))
    assert {95, 99} >= set(Checkpoints(folder).steps()) - {60, 70, 80, 90}
    assert not list(folder.glob(".tmp-*")), touch
    print(found.step, flush=True)
    if code == 0:
        break
"""


def test_a_crash_before_any_touch_of_the_file_system_leaves_the_old_or_the_new_one(
    tmp_path, start_python
):
    process = start_python(CRASH_EVERYWHERE, tmp_path)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    steps = [int(line) for line in output.split()]
    assert steps == sorted(steps)
    assert set(steps) == {90, 95}  # early crashes leave the old one, late ones the new one
    assert len(steps) > 10


@jax.numpy_dtype_promotion("standard")  # optax's Adam mixes whole and real numbers
def test_a_training_that_stops_and_goes_on_ends_where_one_that_never_stopped_does(checkpoints):
    target = jnp.asarray([1.0, -2.0, 0.5])

    def loss(params, key):
        return {"loss": jnp.sum((params - target - jr.normal(key, (3,))) ** 2)}

    optimiser = optax.adam(optax.cosine_decay_schedule(0.1, 12))
    options = {"block": 2, "decay": 0.9, "key": jr.key(7)}

    def fresh():
        return start(jnp.zeros(3), optimiser)

    straight = fit(gradient_of(loss), fresh(), optimiser, steps=12, **options)

    fit(
        gradient_of(loss),
        fresh(),
        optimiser,
        steps=6,
        on_step=lambda i: checkpoints.save(i.step, i.state),
        **options,
    )
    found = checkpoints.latest(jax.eval_shape(fresh))
    assert found is not None
    assert found.step == 6
    resumed = fit(gradient_of(loss), found.tree, optimiser, steps=12, **options)
    for a, b in zip(jax.tree.leaves(straight), jax.tree.leaves(resumed), strict=True):
        assert a.dtype == b.dtype
        assert (a == b).all()
