"""Sweeps: throughput with 1, 2 and 4 workers, overhead per trial, and a study of 10,000 trials.

Trials train static designs of the linear-Gaussian task for a few steps, in workers of one thread
each. Throughput counts from the first trial's start to the last one's end, which leaves out the
imports of the workers; the seconds of processors count all of it. The overhead is that of asking
Optuna, the lease, and telling, with a trial that does nothing.

    make bench, or: python benchmarks/scaling.py            several minutes
    python benchmarks/scaling.py --quick                    does it run?
"""

import datetime
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

import scorebed
from measuring import arguments, table
from scorebed.sweeps import worker
from scorebed.sweeps.creation import create_study
from scorebed.sweeps.journal import JournalFile
from scorebed.sweeps.study import JOURNAL, SweepStudy
from scorebed.sweeps.worker import Worker

SIZES = [
    "score.steps=10",
    "score.batch=8",
    "score.width=8",
    "score.particles=2",
    "score.cloud=2",
    "policy_training.steps=2",
    "policy_training.batch=8",
    "policy_training.monitor_every=2",
    "policy_training.monitor_inner=8",
    "evaluation.outer=16",
    "evaluation.inner=32",
    "evaluation.select_outer=16",
    "evaluation.references=false",
]
SPACE = {
    "policy": "static",
    "policy_training": {
        "learning_rate": {"low": 1e-3, "high": 1e-1, "log": True},
        "batch": [64, 128],
        "steps": 200,
        "monitor_every": 100,
        "monitor_inner": 64,
    },
    "evaluation": {"outer": 64, "inner": 256},
}
# Of one thread each, and quick to compile: it is the study that is measured, not the training.
FLAGS = (
    "--xla_cpu_multi_thread_eigen=false --xla_backend_optimization_level=0 "
    "--xla_cpu_use_fusion_emitters=false"
)
WORK = "from scorebed.cli import main; main()"


def processor_seconds(who: int) -> float:
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


def score(folder: pathlib.Path) -> pathlib.Path:
    """A run with a trained score; how good it is does not matter."""
    options = [word for size in SIZES for word in ("--set", size)]
    out = ["--out", str(folder), "--json"]
    subprocess.run(
        [sys.executable, "-c", WORK, "train", "linear-gaussian", *out, *options],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    return folder


def throughput(folder: pathlib.Path, run: pathlib.Path, workers: int, trials: int) -> tuple:
    """Trials per minute, and seconds of processors per trial."""
    study = create_study(folder, run, space=SPACE, trials=trials, sampler="random")
    before = processor_seconds(resource.RUSAGE_CHILDREN)
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", WORK, "sweep", "work", str(folder), "--json"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "XLA_FLAGS": FLAGS, "OMP_NUM_THREADS": "1"},
        )
        for _ in range(workers)
    ]
    assert not any(process.wait() for process in processes)
    used = processor_seconds(resource.RUSAGE_CHILDREN) - before
    done = study.load().trials
    span = max(t.datetime_complete for t in done) - min(t.datetime_start for t in done)
    return 60 * trials / (span / datetime.timedelta(seconds=1)), used / trials


def stand_in(planner, trial, settings, lease, **_):
    """A trial that does nothing, with a result of the size of a real one."""
    return {
        "value": trial.number / 1e6,
        "lower_se": 0.1,
        "seconds": 1.0,
        "nle": 1,
        "seed": planner.seed(trial.number),
        "settings": dict(settings),
        "run": "none",
        "attempts": lease.epoch,
    }


def overhead(study: SweepStudy, trials: int) -> float:
    """Seconds of a processor per trial that does nothing."""
    one = Worker(study)
    begun = time.process_time()
    ended = one.work(at_most=trials)
    return (time.process_time() - begun) / ended


def fill(study: SweepStudy, trials: int) -> float:
    """Repeat the lines of a study's first trial as those of so many trials; megabytes."""
    path = study.folder / JOURNAL
    head, *lines = path.read_text().splitlines()
    first = [line for line in map(json.loads, lines) if line.get("trial_id", 0) == 0]
    first = first[: 1 + next(i for i, line in enumerate(first) if "values" in line)]
    for line in first:
        line.pop("crc32")  # a line is given its own when it is written
    logs = []
    for number in range(trials):
        own = {"trial_id": number}
        logs += ({**line, **(own if "trial_id" in line else {})} for line in first)
    path.write_text(head + "\n")
    JournalFile(path).append_logs(logs)
    return path.stat().st_size / 1e6


def status(study: SweepStudy) -> tuple[float, float]:
    """Seconds, and seconds of processors, of `scorebed sweep status`, imports included."""
    times = []
    for _ in range(3):
        before, begun = processor_seconds(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run(
            [sys.executable, "-c", WORK, "sweep", "status", str(study.folder), "--json"],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        used = processor_seconds(resource.RUSAGE_CHILDREN) - before
        times.append((time.perf_counter() - begun, used))
    return min(times)


def costs(folder: pathlib.Path, run: pathlib.Path, counts: tuple[int, ...]) -> None:
    """What trials and `status` cost in studies with so many finished trials."""
    worker.carry_out = stand_in
    rows = []
    for finished in counts:
        given = {"space": SPACE, "trials": finished + 20, "sampler": "random"}
        study = create_study(folder / f"with-{finished}", run, **given)
        overhead(study, 1)
        size = fill(study, finished) if finished else 0.0
        cost = overhead(study, 15)
        rows.append((finished, size, 1000 * cost, *status(study)))
    table(
        ["finished trials", "journal, MB", "CPU ms per trial", "status, s", "status, CPU s"],
        [
            (f"{n:,}", f"{size:.1f}", f"{cost:.0f}", f"{wall:.2f}", f"{used:.2f}")
            for n, size, cost, wall, used in rows
        ],
    )


def main() -> None:
    options = arguments(__doc__).parse_args()
    crews, trials, many = ((1,), 1, 50) if options.quick else ((1, 2, 4), 8, 10_000)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        run = score(folder / "run")
        rows = []
        for workers in crews:
            rate, used = throughput(folder / f"crew-{workers}", run, workers, trials)
            rows.append((rate, used))
            print(f"{workers} workers: {rate:.3g} trials a minute", flush=True)
        table(
            ["workers", "trials a minute", "of one worker's", "CPU seconds per trial"],
            [
                (workers, f"{rate:.3g}", f"{rate / rows[0][0]:.2f}", f"{used:.2f}")
                for workers, (rate, used) in zip(crews, rows, strict=True)
            ],
        )
        costs(folder, run, (0, many))


if __name__ == "__main__":
    main()
