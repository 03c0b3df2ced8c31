"""Fifty trials on four workers, of which twenty are killed: fifty results, each once, equal to
those of a serial study. `SCOREBED_CHAOS=TRIALS,KILLS` runs another number; `-s` shows figures.
"""

import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections import Counter

import pytest
from studies import outcome

from scorebed.sweeps.leases import latest
from scorebed.sweeps.status import study_status
from scorebed.sweeps.study import RESULT
from scorebed.sweeps.worker import TRIES, Worker

pytestmark = pytest.mark.slow

TRIALS, KILLS = map(int, os.environ.get("SCOREBED_CHAOS", "50,20").split(","))
WORKERS, LEASE, MINUTES = 4, "15", 60
CODE = (  # a checkpoint after every block
    "import scorebed.runs.stage as k; k.CHECKPOINT_SECONDS = 0.0; from scorebed.cli import main; "
    "main()"
)


def start(study, cache):
    return subprocess.Popen(
        [sys.executable, "-c", CODE, "sweep", "work", str(study.folder), "--lease", LEASE],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "JAX_COMPILATION_CACHE_DIR": str(cache)},
    )


def victim(study, processes, deaths):
    """A worker with a trial in hand. A trial that has died of two is left alone: a third would be
    taken for its own fault.
    """
    owned = {}
    for each in study_status(study).running:
        if deaths[each.number] < TRIES - 1:
            owned[each.owner.rpartition("-")[2]] = each.number
    found = [p for p in processes if p.poll() is None and str(p.pid) in owned]
    if not found:
        return None
    process = random.choice(found)
    return process, owned[str(process.pid)]


def test_killed_workers_cost_a_study_nothing_but_time(make, tmp_path):
    serial, chaos = make("serial", trials=TRIALS), make("chaos", trials=TRIALS)
    began = time.monotonic()
    cache = tmp_path / "compiled"
    processes = [start(chaos, cache) for _ in range(WORKERS)]
    deaths: Counter[int] = Counter()
    random.seed(0)
    try:
        while not (status := study_status(chaos)).over:
            assert time.monotonic() - began < 60 * MINUTES, status
            due = (status.finished + 1) * KILLS >= sum(deaths.values()) * TRIALS
            if due and sum(deaths.values()) < KILLS and (found := victim(chaos, processes, deaths)):
                time.sleep(random.uniform(0, 2))  # anywhere between two checkpoints
                process, number = found
                if process.poll() is None and latest(chaos.leases_folder, number)[0]:
                    process.send_signal(signal.SIGKILL)
                    process.wait()
                    deaths[number] += 1
                    processes.append(start(chaos, cache))
            time.sleep(0.2)
        for process in processes[-WORKERS:]:
            process.wait(timeout=120)
    finally:
        for process in processes:
            process.kill()
            process.wait()
    seconds = time.monotonic() - began
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    Worker(serial).work()
    assert outcome(chaos) == outcome(serial)
    assert [each.number for each in chaos.load().trials] == list(range(TRIALS))
    assert len(list(chaos.trials_folder.iterdir())) == TRIALS
    assert sum(deaths.values()) == KILLS
    attempts = [trial.user_attrs[RESULT]["attempts"] for trial in chaos.load().trials]
    figures = {
        "trials": TRIALS,
        "kills": KILLS,
        "taken up": sum(each - 1 for each in attempts),
        "most attempts at one": max(attempts),
        "seconds": round(seconds),
        "cpu seconds": round(used.ru_utime + used.ru_stime),
    }
    sys.stdout.write(json.dumps(figures) + "\n")
