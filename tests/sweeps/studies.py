"""What tests of studies share."""

import time

from scorebed.sweeps.study import RESULT


def result(planner, trial, settings, lease, **_):
    """What stands for a training: its value follows from the seed."""
    return {
        "value": float(planner.seed(trial.number) % 1000),
        "lower_se": 0.1,
        "seed": planner.seed(trial.number),
        "settings": dict(settings),
        "attempts": lease.epoch,
    }


def values(study):
    return [(t.number, t.state, t.values, t.params) for t in study.load().trials]


def outcome(study):
    """What must not depend on who ran what."""
    return [
        (t.number, t.state.name, t.values, t.params, t.user_attrs[RESULT]["seed"])
        for t in study.load().trials
    ]


def wait_for(condition, seconds=600):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
