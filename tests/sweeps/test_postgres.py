"""A study whose trials are in PostgreSQL, by a server that the test starts."""

import threading

import pytest
from studies import result, values

from scorebed.sweeps import away, leases, worker
from scorebed.sweeps.heartbeats import Heartbeats
from scorebed.sweeps.status import study_status
from scorebed.sweeps.study import RESULT, open_study
from scorebed.sweeps.worker import Worker


@pytest.fixture
def study(make, postgres):
    return make("elsewhere", storage=postgres.database())


def test_a_study_in_postgresql_is_that_of_a_journal(make, study, monkeypatch):
    monkeypatch.setattr(worker, "carry_out", result)
    serial = make("serial")
    Worker(serial).work()
    for name in ("a", "b", "c"):
        Worker(study, owner=name).work(at_most=1)
    assert values(study) == values(serial)
    assert not (study.folder / "journal.log").exists()
    assert study_status(open_study(study.folder)).finished == 3


def test_a_server_that_goes_away_is_waited_for(study, postgres, monkeypatch):
    monkeypatch.setattr(away, "LONGEST_PAUSE", 1.0)
    stopped = []

    def cut_off(planner, trial, settings, lease, **_):
        if trial.number == 1 and not stopped:
            stopped.append(trial.number)
            postgres.stop()
            threading.Timer(2.0, postgres.start).start()
        return result(planner, trial, settings, lease)

    monkeypatch.setattr(worker, "carry_out", cut_off)
    assert Worker(study).work() == 3
    assert study_status(study).failed == 0
    # Its worker waited with the result in hand: nobody had to begin again.
    assert study.load().trials[1].user_attrs[RESULT]["attempts"] == 1


def test_heartbeats_go_by_the_clock_of_the_server(study):
    one = Worker(study, lease_seconds=1.0)
    lease = one._begin()
    trial = one._get_one(lease.number)
    hearts = Heartbeats(one.trials)
    assert hearts.silent() == set()
    with lease.renewed(lambda: hearts.beat(trial._trial_id)):
        threading.Event().wait(2.5)
        assert hearts.silent() == set()
        assert not leases.is_free(leases.latest(study.leases_folder, 0)[1])
    threading.Event().wait(1.5)
    assert hearts.silent() == {trial._trial_id}
