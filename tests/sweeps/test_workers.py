"""Leases and workers: nobody runs a trial twice, nothing is lost, what fails is given up."""

import os
import subprocess
import sys
import threading
import time

import pytest
from optuna.trial import TrialState
from studies import result, values

from scorebed.errors import DiskFullError, InvalidValueError
from scorebed.runs.stage import Progress
from scorebed.sweeps import away, leases, many, on_dask, worker
from scorebed.sweeps.halving import rung_ends
from scorebed.sweeps.leases import LeaseLostError
from scorebed.sweeps.status import study_status
from scorebed.sweeps.study import RESULT, open_study
from scorebed.sweeps.threads import THREADS
from scorebed.sweeps.trial import LosingTrialError, attempt_folder
from scorebed.sweeps.worker import TRIES, Worker


@pytest.fixture
def untrained(monkeypatch):
    monkeypatch.setattr(worker, "carry_out", result)


@pytest.mark.usefixtures("untrained")
def test_trials_follow_from_seed_and_number_alone(make):
    serial, shared = make("serial", trials=6), make("shared", trials=6)
    assert Worker(serial).work() == 6
    workers = [Worker(shared, owner=name) for name in ("a", "b", "c")]
    for turn in (0, 1, 2, 2, 0, 1):
        workers[turn].work(at_most=1)
    assert values(serial) == values(shared)
    other = make("other", trials=6, seed=1)
    Worker(other).work()
    assert values(other) != values(serial)
    # The rate at the end is suggested with the schedule that has one.
    for trial in serial.load().trials:
        cosine = trial.params["policy_training.schedule"] == "cosine"
        assert ("policy_training.final_rate" in trial.params) == cosine


def test_workers_compile_for_equally_many_threads_on_any_machine(make, monkeypatch):
    study = make()
    monkeypatch.delenv("PJRT_NPROC")
    Worker(study)
    assert os.environ["PJRT_NPROC"] == THREADS
    monkeypatch.setenv("PJRT_NPROC", "3")
    Worker(study)
    assert os.environ["PJRT_NPROC"] == "3"


def test_nothing_is_computed_before_a_worker_is_made(make):
    """What JAX has begun with can no longer be changed."""
    code = (
        "import sys, scorebed.sweeps.worker as w; from pathlib import Path\n"
        "import jax._src.xla_bridge as b\n"
        "w.fix_threads = lambda: sys.exit(b.backends_are_initialized())\n"
        "from scorebed.cli import main; main()"
    )
    command = [sys.executable, "-c", code, "sweep", "work", str(make().folder)]
    assert subprocess.run(command, check=False).returncode == 0


@pytest.mark.usefixtures("untrained")
def test_a_grid_is_walked_through_once(make):
    space = {"policy_training": {"schedule": ["constant", "cosine"], "batch": [2, 4, 8]}}
    study = make(space=space, sampler="grid", trials=None)
    assert study.trials == 6
    assert Worker(study).work() == 6
    assert len({tuple(t.params.items()) for t in study.load().trials}) == 6


@pytest.mark.usefixtures("untrained")
@pytest.mark.parametrize("sampler", ["tpe"])
def test_searches_that_look_back_work_too(make, sampler):
    study = make(sampler=sampler)
    assert Worker(study).work() == 3


def test_a_search_without_its_package_is_refused_with_its_name(make):
    pytest.importorskip("optuna")
    try:
        import cmaes  # noqa: F401
    except ModuleNotFoundError:
        with pytest.raises(InvalidValueError, match="pip install cmaes"):
            make(sampler="cmaes")


@pytest.mark.usefixtures("untrained")
def test_a_database_holds_the_trials_too(make, tmp_path):
    study = make(storage=f"sqlite:///{tmp_path}/trials.db")
    assert Worker(study).work() == 3
    assert not (study.folder / "journal.log").exists()
    assert study_status(open_study(study.folder)).finished == 3


def test_a_lease_is_held_by_one_worker_and_taken_after_it_expires(tmp_path):
    first = leases.claim(tmp_path, 7, 1, "a", seconds=0.2)
    assert first is not None
    assert leases.claim(tmp_path, 7, 1, "b") is None
    epoch, content = leases.latest(tmp_path, 7)
    assert (epoch, content.owner) == (1, "a")
    assert not leases.is_free(content)
    with first.renewed():
        time.sleep(0.5)
        assert not leases.is_free(leases.latest(tmp_path, 7)[1])
    time.sleep(0.3)
    assert leases.is_free(leases.latest(tmp_path, 7)[1])
    second = leases.claim(tmp_path, 7, 2, "b")
    assert second is not None
    assert first.lost
    first.renew()  # too late: it changes nothing
    assert leases.latest(tmp_path, 7)[1].owner == "b"
    with pytest.raises(LeaseLostError):
        first.check()
    second.end()
    assert list(tmp_path.iterdir()) == []
    assert second.lost


def test_whoever_finishes_a_trial_ends_all_of_its_leases(tmp_path):
    first, second = (leases.claim(tmp_path, 7, epoch, "a") for epoch in (1, 2))
    other = leases.claim(tmp_path, 8, 1, "a")
    first.end()
    assert second.lost
    assert not other.lost


def test_a_lease_is_given_back_on_a_full_disk(tmp_path, monkeypatch):
    lease = leases.claim(tmp_path, 7, 1, "a")

    def full(*_, **__):
        raise DiskFullError("writing", got="'No space left'", expected="room", fix="free some.")

    monkeypatch.setattr(leases, "replace_file", full)
    lease.give_back()
    _, content = leases.latest(tmp_path, 7)
    assert (content.owner, content.expires) == ("a", 0.0)


def test_a_link_whose_answer_was_lost_is_still_ours(tmp_path, monkeypatch):
    link = leases.os.link

    def twice(*paths):
        link(*paths)
        link(*paths)

    monkeypatch.setattr(leases.os, "link", twice)
    assert leases.claim(tmp_path, 7, 1, "a") is not None
    assert leases.claim(tmp_path, 7, 1, "b") is None


@pytest.mark.usefixtures("untrained")
def test_a_trial_that_was_left_is_taken_up_with_its_number(make):
    study = make()
    dead = Worker(study, owner="dead", lease_seconds=0.1)
    left = dead._begin()
    assert left is not None
    time.sleep(0.2)
    assert Worker(study, owner="alive").work() == 3
    assert left.lost
    assert [t.state for t in study.load().trials] == [TrialState.COMPLETE] * 3
    assert study.load().trials[0].user_attrs[RESULT]["attempts"] == 2


def test_a_worker_that_lost_its_lease_stores_nothing(make, monkeypatch):
    study = make(trials=1)

    def slow(planner, trial, settings, lease, **_):
        leases.claim(study.leases_folder, trial.number, lease.epoch + 1, "another")
        return result(planner, trial, settings, lease)

    monkeypatch.setattr(worker, "carry_out", slow)
    slept = Worker(study)
    assert slept._carry_out(slept._begin()) is False
    assert study.load().trials[0].state == TrialState.RUNNING


def test_of_two_that_finish_at_once_the_run_that_was_stored_stays(make, monkeypatch):
    study = make(trials=1)

    def run(planner, trial, settings, lease, **_):
        name = attempt_folder(study.trials_folder, trial.number, lease.epoch)
        name.mkdir()
        return {**result(planner, trial, settings, lease), "run": name.name}

    monkeypatch.setattr(worker, "carry_out", run)
    early, late = Worker(study, owner="early"), Worker(study, owner="late")
    first = early._begin()
    second = leases.claim(study.leases_folder, 0, 2, "late")
    # The first has looked at its lease before the second took it, and tells after.
    monkeypatch.setattr(leases.Lease, "check", lambda _: None)
    assert early._carry_out(first)
    assert second.lost
    assert late._carry_out(second)
    assert study.load().trials[0].user_attrs[RESULT]["run"] == "00000"
    assert [path.name for path in study.trials_folder.iterdir()] == ["00000"]


def test_a_trial_too_many_is_told_so_and_counts_for_nothing(make, monkeypatch):
    monkeypatch.setattr(worker, "carry_out", result)
    study = make(trials=2)
    assert Worker(study).work() == 2
    with monkeypatch.context() as patch:  # as if its lock had been taken while it slept
        patch.setattr(Worker, "_all_begun", lambda _: False)
        assert Worker(study)._begin() is None
    assert len(study.load().trials) == 3
    found = study_status(study)
    assert (found.finished, found.failed, found.over) == (2, 0, True)
    assert Worker(study).work() == 0


def test_a_disk_that_goes_away_is_waited_for(make, monkeypatch):
    monkeypatch.setattr(worker, "carry_out", result)
    study = make()
    elsewhere = study.folder.with_name("elsewhere")
    back = threading.Timer(1.5, lambda: elsewhere.rename(study.folder))

    def unplugged(planner, trial, settings, lease, **_):
        if not back.is_alive() and trial.number == 1 and lease.epoch == 1:
            study.folder.rename(elsewhere)
            back.start()
            lease.check()
        return result(planner, trial, settings, lease)

    monkeypatch.setattr(worker, "carry_out", unplugged)
    lines = []
    shown = Progress()
    monkeypatch.setattr(shown, "end", lines.append)
    assert Worker(study, progress=shown).work() == 3
    assert not elsewhere.exists()
    assert any("waiting for the storage" in line for line in lines)
    assert study_status(study).failed == 0
    assert study.load().trials[1].user_attrs[RESULT]["attempts"] == 2


def test_a_database_that_goes_away_is_no_fault_of_a_trial(make, monkeypatch, tmp_path):
    from sqlalchemy.exc import OperationalError

    faults = [OperationalError("", {}, Exception())] * TRIES

    def cut_off(planner, trial, settings, lease, **_):
        if faults:
            raise faults.pop()
        return result(planner, trial, settings, lease)

    monkeypatch.setattr(worker, "carry_out", cut_off)
    study = make(storage=f"sqlite:///{tmp_path}/trials.db")
    assert Worker(study).work() == 3
    assert study_status(study).failed == 0


@pytest.mark.usefixtures("untrained")
def test_a_trial_in_a_database_is_taken_after_its_heartbeats_stop(make, tmp_path):
    study = make(trials=1, storage=f"sqlite:///{tmp_path}/trials.db")
    alive, other = (Worker(study, owner=name, lease_seconds=2.0) for name in ("alive", "other"))
    lease = alive._begin()
    # To a clock that is fast the lease has expired; the server's clock knows better.
    lease._write(lease.content._replace(expires=1.0))
    assert other._take_up() is None
    time.sleep(4)
    taken = other._take_up()
    assert (taken.epoch, taken.content.owner) == (2, "other")


@pytest.mark.parametrize(
    "error", [RuntimeError("the policy\nis poison"), FileNotFoundError(2, "no such\ntable")]
)
def test_a_poisonous_trial_is_given_up_while_others_go_on(make, monkeypatch, error):
    tried = []

    def poison(planner, trial, settings, lease, **_):
        tried.append(trial.number)
        if trial.number == 1:
            raise error
        return result(planner, trial, settings, lease)

    monkeypatch.setattr(worker, "carry_out", poison)
    study = make()
    assert Worker(study).work() == 3
    assert tried.count(1) == TRIES
    found = study_status(study)
    assert (found.finished, found.failed) == (2, 1)
    assert found.errors == {1: f"{type(error).__name__}: {' '.join(str(error).split())}"}


def test_a_trial_that_kills_its_workers_is_given_up(make, monkeypatch):
    monkeypatch.setattr(worker, "carry_out", result)
    study = make(trials=1)
    for attempt in range(TRIES):
        killed = Worker(study, owner=f"killed-{attempt}", lease_seconds=0.05)
        assert (killed._take_up() or killed._begin()) is not None
        time.sleep(0.1)
    Worker(study).work()
    assert study_status(study).errors == {0: f"killed-{TRIES - 1} died"}


def test_a_slow_worker_that_comes_back_has_not_died(make, monkeypatch):
    monkeypatch.setattr(worker, "carry_out", result)
    study = make(trials=1)
    for attempt in range(2 * TRIES):
        slow = Worker(study, owner=f"slow-{attempt}", lease_seconds=0.05)
        lease = slow._take_up() or slow._begin()
        assert lease is not None
        time.sleep(0.1)
        taken = Worker(study, owner="fast", lease_seconds=0.05)._take_up()
        assert slow._carry_out(lease) is False
        taken.give_back()
    assert Worker(study).work() == 1
    assert study_status(study).failed == 0
    assert list(study.leases_folder.iterdir()) == []


def test_a_full_disk_ends_a_worker_and_not_the_study(make, monkeypatch):
    def full(*_, **__):
        raise DiskFullError("writing", got="'No space left'", expected="room", fix="free some.")

    study = make()
    with monkeypatch.context() as patch:
        patch.setattr(worker, "carry_out", full)
        with pytest.raises(DiskFullError):
            Worker(study).work()
    monkeypatch.setattr(worker, "carry_out", result)
    assert Worker(study).work() == 3
    assert study_status(study).failed == 0


def test_a_storage_that_is_away_is_waited_for(monkeypatch):
    from sqlalchemy.exc import OperationalError

    pauses, answers = [], iter([OperationalError("", {}, Exception()), None, 3])
    monkeypatch.setattr(away.time, "sleep", pauses.append)

    def call():
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert away.patiently(call) is None
    assert pauses == [1.0]
    with pytest.raises(ValueError, match="wrong"):
        away.patiently(lambda: int("wrong"))


@pytest.mark.usefixtures("untrained")
def test_a_dask_cluster_works_on_a_study(make):
    distributed = pytest.importorskip("distributed")
    study = make()
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None
    ) as cluster:
        ended = on_dask.run_on_dask(study, cluster.scheduler_address, lease_seconds=60.0)
    assert sum(ended.values()) == 3
    assert len(ended) == 2
    assert study_status(study).finished == 3


def test_a_scheduler_that_is_not_there_is_said_so(make, monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr(on_dask, "REACHED_WITHIN", 1)
    with pytest.raises(InvalidValueError, match="dask scheduler"):
        on_dask.run_on_dask(make(), "tcp://127.0.0.1:9", lease_seconds=60.0)


def test_an_array_script_names_the_study_and_its_workers(make):
    study = make()
    text = many.write_array_script(study, 4, ["--lease", "90"]).read_text()
    assert "#SBATCH --array=1-4\n" in text
    assert f"scorebed sweep work {study.folder} --lease 90\n" in text


def test_the_worse_half_is_stopped_at_a_rung(make, monkeypatch):
    reported = [4.0, 3.0, 2.0, 1.0, 5.0]

    def at_first_rung(planner, trial, settings, lease, **_):
        trial.report(reported[trial.number], 0)
        if trial.should_prune():
            raise LosingTrialError
        return result(planner, trial, settings, lease)

    monkeypatch.setattr(worker, "carry_out", at_first_rung)
    study = make(trials=5, halvings=1)
    Worker(study).work()
    states = [trial.state for trial in study.load().trials]
    done, stopped = TrialState.COMPLETE, TrialState.PRUNED
    assert states == [done, done, done, stopped, done]
    assert study_status(study).pruned == 1
    assert rung_ends(100, 8, halvings=2, every=10) == sorted(
        rung_ends(100, 8, halvings=2, every=10)
    )
