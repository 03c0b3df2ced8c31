"""Checksums inside of files: whatever is sealed comes back, and any flipped bit is found."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from scorebed.errors import CheckpointError, InvalidValueError, RunFolderError
from scorebed.runs import seal, strict_json
from scorebed.runs.folder import CONFIG, METRICS, RunFolder
from scorebed.runs.serialisation import decode_leaves, encode_leaves, load_leaves, save_leaves


def flips(data: bytes, every: int = 1):
    """The data with one bit flipped, for every n-th bit."""
    for at in range(0, 8 * len(data), every):
        changed = bytearray(data)
        changed[at // 8] ^= 1 << at % 8
        yield bytes(changed)


def test_objects_come_back_as_they_were_and_those_of_earlier_versions_too():
    values = {"a": 0.1, "b": [1, None, "x"], "c": {"d": float("nan")}}
    plain = strict_json.plain(values)
    assert seal.unsealed(strict_json.loads(strict_json.dumps(seal.sealed(values)))) == plain
    for earlier in ({"a": 1}, {}, [1, 2], None):
        assert seal.unsealed(earlier) == earlier


def test_a_flipped_bit_of_an_object_is_found_or_changes_nothing():
    text = strict_json.dumps(seal.sealed({"lower": 1.25, "n": 7, "name": "ä"})).encode()
    whole = seal.unsealed(strict_json.loads(text))
    found = 0
    for damaged in flips(text):
        try:
            assert seal.unsealed(strict_json.loads(damaged)) == whole
        except ValueError:
            found += 1
    assert found > 0.99 * 8 * len(text)


def test_what_is_kept_beside_an_object_is_summed_up_too():
    sealed = seal.sealed({"y": [1.0]}, beside=("bench", 3))
    assert seal.unsealed(sealed, beside=("bench", 3)) == {"y": [1.0]}
    with pytest.raises(ValueError, match="not those that were written"):
        seal.unsealed(sealed, beside=("bench", 4))


def test_a_flipped_bit_of_a_text_is_found_unless_it_is_of_the_comment_alone():
    text = 'steps = 100\nname = "a"\n'
    data = seal.sealed_text(text)
    seal.check_text(data)
    seal.check_text(b"steps = 100\n")  # of an earlier version
    for damaged in flips(data):
        try:
            seal.check_text(damaged)
        except ValueError:
            continue
        assert damaged.startswith(text.encode())


def test_a_flipped_bit_of_arrays_is_found():
    tree = {"w": jnp.arange(3.0), "n": np.int32(4)}
    data = encode_leaves(tree, {"task": "abc"})
    for damaged in flips(data, every=3):
        try:
            again = decode_leaves(damaged, tree, where="x")
        except (CheckpointError, InvalidValueError):
            continue
        assert eqx.tree_equal(again, tree)  # in the header, where nothing is told by it


def test_arrays_of_an_earlier_version_have_no_checksum_and_load(tmp_path, monkeypatch):
    tree = {"w": jnp.arange(3.0)}
    monkeypatch.setattr("scorebed.runs.serialisation._content", lambda *_: "")
    save_leaves(tmp_path / "a", tree)
    monkeypatch.undo()
    assert eqx.tree_equal(load_leaves(tmp_path / "a", tree), tree)


def test_a_changed_configuration_of_a_run_is_refused_unless_it_is_meant(tmp_path, config):
    with RunFolder.create(tmp_path / "run", config) as run:
        assert run.config() == config
    path = tmp_path / "run" / CONFIG
    path.write_text(path.read_text().replace("steps = 50", "steps = 51"))
    with pytest.raises(InvalidValueError, match=r"a changed one.*delete its last line"):
        run.config()
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    assert run.config().trained_by.policy_settings.steps == 51


def test_a_changed_json_file_is_refused_and_a_changed_line_left_out(tmp_path, config):
    said = []
    with RunFolder.create(tmp_path / "run", config, on_warning=said.append) as run:
        run.write_json_atomic("record.json", {"lower": 1.5})
        for step in (1, 2):
            run.append_metrics({"stage": "score", "step": step, "loss": 0.5})
    path = run.path / "record.json"
    path.write_text(path.read_text().replace("1.5", "1.7"))
    with pytest.raises(RunFolderError, match="not those that were written"):
        run.read_json("record.json")
    metrics = run.path / METRICS
    metrics.write_text(metrics.read_text().replace('"loss": 0.5', '"loss": 0.7', 1)[:-9])
    assert run.read_metrics() == []
    assert [line.split(" of ")[0] for line in said] == ["The last line", "Skipped line 1"]
