"""How fast a live experiment is: next design, posterior, surprise, and durable observations with sixteen clients.

Location finding (thirty steps, two sources) with a fresh policy of the paper's size, since training changes no time. Latencies
are of a warm session, each design after a new outcome and with its own write to the disk. Clients are threads with an experiment
each in one file: with a shared connection, as behind a web page, or with a connection each, as processes would have.

    python benchmarks/live.py            about half a minute
    python benchmarks/live.py --quick    does it run?
"""

import argparse
import pathlib
import random
import tempfile
import threading
import time
from collections.abc import Callable

import scorebed  # before JAX, so that the memory allocator is set
import equinox as eqx
import jax.random as jr
import numpy as np
from scorebed.bench.presets import preset_values
from scorebed.policies import make_policy
from scorebed.runs.artifacts import fingerprint
from scorebed.runs.config import make_config
from scorebed.runs.folder import RunFolder
from scorebed.runs.leaves import save_leaves
from scorebed.runs.load import Run, load
from scorebed.session.engine import Session
from scorebed.session.store import Store
from scorebed.tasks import make_task

CLIENTS = 16
TASK = "location-finding"


def fresh_run(path: pathlib.Path) -> Run:
    task = make_task(TASK)
    with RunFolder.create(path, make_config(preset_values("quick", TASK, task, method="pce"))) as folder:
        policy = make_policy("dad", task, key=jr.key(0))
        save_leaves(path / "policy-0.safetensors", eqx.filter(policy, eqx.is_array), {"task": fingerprint(task)})
        folder.write_json_atomic("record.json", {"lower": None, "upper": None})
    return load(path)


def timed(action: Callable[..., object], *arguments: object) -> float:
    begun = time.perf_counter()
    action(*arguments)
    return 1000 * (time.perf_counter() - begun)


def tell(what: str, milliseconds: list[float]) -> None:
    p50, p99 = np.quantile(milliseconds, (0.5, 0.99))
    print(f"{what:32} median {p50:7.2f} ms   p99 {p99:7.2f} ms   (n = {len(milliseconds)})")


def latencies(run: Run, store: Store, experiments: int) -> None:
    dice = random.Random(0)
    design, observe, posterior, surprise = [], [], [], []
    for number in range(experiments):
        session = Session.create(run, db=store, seed=number)
        if number == 0:
            session.warm()
        for _ in range(run.task.horizon):
            y = dice.gauss(0, 1)
            design.append(timed(session.propose))
            surprise.append(timed(session.surprise, y))
            observe.append(timed(session.observe, y))
            posterior.append(timed(session.posterior))
    tell("next design, stored", design)
    tell("observation, stored", observe)
    tell("posterior", posterior)
    tell("surprise", surprise)


def load_test(run: Run, path: pathlib.Path, *, rounds: int, shared: bool) -> None:
    store = Store(path)
    sessions = [
        Session.create(run, db=store if shared else path, experiment=f"{shared}-{i}", seed=i) for i in range(CLIENTS)
    ]
    sessions[0].warm()
    gate, errors = threading.Barrier(CLIENTS + 1), []

    def client(session: Session) -> None:
        gate.wait()
        try:
            for step in range(1, rounds + 1):
                proposal = session.propose()
                session.observe(0.1 * step, proposal=proposal.id, token=f"{step}")
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=client, args=(session,)) for session in sessions]
    for thread in threads:
        thread.start()
    gate.wait()
    begun = time.perf_counter()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - begun
    rows = sum(len(session.history()) for session in sessions)
    how = "one connection" if shared else "one connection each"
    print(
        f"{CLIENTS} clients, {how:20} {CLIENTS * rounds / seconds:7.0f} observations/s, as many proposals, {rows} rows, "
        f"{len(errors)} errors"
    )
    for session in sessions:
        session.close()
    store.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    print(f"scorebed {scorebed.__version__}, {TASK}")
    with tempfile.TemporaryDirectory(dir=".") as folder:  # where the disk is, not in memory
        path = pathlib.Path(folder)
        run = fresh_run(path / "run")
        store = Store(path / "latency.sqlite")
        latencies(run, store, 1 if quick else 8)
        store.close()
        for shared in (True, False):
            load_test(run, path / f"load-{shared}.sqlite", rounds=3 if quick else 30, shared=shared)


if __name__ == "__main__":
    main()
