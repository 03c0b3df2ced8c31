"""The journal file: whole lines, never begun anew, readable by Optuna itself."""

import json

import optuna
import pytest
from optuna.storages.journal import JournalFileBackend, JournalStorage
from optuna.trial import Trial, TrialState
from studies import result

from scorebed.errors import DiskFullError, RunFolderError
from scorebed.sweeps import journal, worker
from scorebed.sweeps.journal import JournalFile, held, lock_beside
from scorebed.sweeps.worker import Worker


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "journal.log"
    file.touch()
    return file


def test_half_a_line_is_cut_off_before_the_next_is_written(path):
    JournalFile(path).append_logs([{"op": 1}, {"op": 2}])
    with path.open("ab") as file:
        file.write(b'{"op": 3, "ha')  # its writer was killed
    assert [log["op"] for log in JournalFile(path).read_logs(0)] == [1, 2]
    JournalFile(path).append_logs([{"op": 4}])
    assert [log["op"] for log in JournalFileBackend(str(path)).read_logs(0)] == [1, 2, 4]
    path.write_bytes(b'{"only')
    JournalFile(path).append_logs([{"op": 5}])
    assert json.loads(path.read_text()) == {"op": 5, "crc32": "7f648efc"}


def test_a_full_disk_is_told_from_one_that_is_away(path, monkeypatch):
    found = JournalFile(path)

    def full(_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(journal.os, "fsync", full)
        with pytest.raises(DiskFullError):
            found.append_logs([{"op": 1}])
    path.unlink()
    with pytest.raises(RunFolderError, match="No such file"):
        found.append_logs([{"op": 1}])
    with pytest.raises(RunFolderError, match="No such file"):
        JournalFile(path)
    assert not path.exists()


@pytest.mark.filterwarnings("ignore:The value of `grace_period`")
def test_the_lock_of_a_dead_worker_is_taken(tmp_path, monkeypatch):
    monkeypatch.setattr(journal, "GRACE", 1)
    lock_beside(tmp_path / "ask").acquire()  # and its owner is killed
    with held(lock_beside(tmp_path / "ask")):
        assert (tmp_path / "ask.lock").exists()
    assert list(tmp_path.iterdir()) == []


def test_optuna_reads_a_study_without_us(finished):
    """What optuna-dashboard does: it opens the journal by Optuna's own backend."""
    storage = JournalStorage(JournalFileBackend(str(finished.folder / "journal.log")))
    study = optuna.load_study(study_name=finished.name, storage=storage)
    assert [trial.values for trial in study.trials] == [t.values for t in finished.load().trials]
    assert study.best_trial.user_attrs["result"]["settings"]["policy"] == "static"


def test_a_brief_journal_leaves_out_the_settings_of_trials_that_are_over(make, monkeypatch):
    monkeypatch.setattr(worker, "carry_out", result)
    study = make()
    brief = study.load(brief=True)
    one = Worker(study)
    one.work(at_most=1)
    assert (brief.trials[0].params, brief.trials[0].values) == ({}, study.load().trials[0].values)
    lease = one._begin()
    one.planner.space.suggest(Trial(one.trials, one._get_one(1)._trial_id), one.planner.used)
    assert brief.trials[1].params == study.load().trials[1].params != {}
    one._tell(lease, TrialState.FAIL, {})
    one.work()
    # Read on from where it was, and from the start.
    for found in (brief, study.load(brief=True)):
        assert [t.values for t in found.trials] == [t.values for t in study.load().trials]
    assert study.load(brief=True).trials[1].params == {}


def test_a_changed_line_is_refused_and_half_a_line_is_told(path, caplog):
    JournalFile(path).append_logs([{"op": 1, "value": 0.5}, {"op": 2}])
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"0.5", b"0.7"))
    with pytest.raises(RunFolderError, match=r"line 1 of .*got other than was written"):
        list(JournalFile(path).read_logs(0))
    path.write_bytes(b'{"op":1}\n' + whole)  # of an earlier version
    assert [log["op"] for log in JournalFile(path).read_logs(0)] == [1, 1, 2]
    path.write_bytes(whole[:-5])
    assert [log["op"] for log in JournalFile(path).read_logs(0)] == [1]
    assert "The last line" in caplog.text
