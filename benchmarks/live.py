"""How fast a live experiment is: next design, posterior, surprise, durable observations with
sixteen clients; the same by HTTP.

Location finding (thirty steps, two sources) with an untrained policy of the paper's size, since
training does not change the timing. Latencies are those of a warm session; every design follows a
new outcome and has its own write to disk. Clients are threads with one experiment each in a single
file: over a shared connection, as behind a web page, or over one connection each, as separate
processes would have.

For HTTP, `scorebed serve` runs in a process of its own on the same two cores as its clients. A
request to observe is answered with the next design once both are on disk. Watchers do what the page
does: they poll once a second and fetch what changed. Their delay is measured from the answer to
whoever entered the outcome until they have it; half a second of it is the polling period.

    python benchmarks/live.py            about a minute
    python benchmarks/live.py --quick    does it run?
"""

import argparse
import contextlib
import http.client
import json
import math
import pathlib
import random
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator
from typing import Any

import scorebed  # before JAX, so that the memory allocator is set
import equinox as eqx
import jax.random as jr
import numpy as np
from scorebed.presets.reader import preset_values
from scorebed.policies import make_policy
from scorebed.runs.artifacts import fingerprint
from scorebed.runs.config import make_config
from scorebed.runs.folder import RunFolder
from scorebed.runs.record import BoundsRecord, Record
from scorebed.runs.serialisation import save_leaves
from scorebed.runs.load import Run, load
from scorebed.session.session import Session
from scorebed.session.store import Store
from scorebed.tasks import make_task

CLIENTS, WATCHERS, PERIOD = 16, 8, 1.0
SLOWEST = 50  # milliseconds of a warm design: more is a fault
TASK = "location-finding"


def fresh_run(path: pathlib.Path) -> Run:
    task = make_task(TASK)
    with RunFolder.create(
        path, make_config(preset_values("quick", TASK, task, method="pce"))
    ) as folder:
        policy = make_policy("dad", task, key=jr.key(0))
        save_leaves(
            path / "policy-0.safetensors",
            eqx.filter(policy, eqx.is_array),
            {"task": fingerprint(task)},
        )
        folder.write_json_atomic("record.json", empty_record().values())
    return load(path)


def empty_record() -> Record:
    """The record of a run without training."""
    unknown = dict.fromkeys(("lower", "lower_se", "upper", "upper_se", "ceiling"), math.nan)
    return Record(
        run="run",
        task=TASK,
        method="pce",
        preset="quick",
        policy="dad",
        policies=1,
        seed=0,
        bounds=BoundsRecord(**unknown, outer=0, inner=0, saturated=0.0),
        bound="contrastive",
        nle=0,
        nle_stages={},
        nle_evaluation=0,
        seconds={},
        references={},
    )


def timed(action: Callable[..., object], *arguments: object) -> float:
    begun = time.perf_counter()
    action(*arguments)
    return 1000 * (time.perf_counter() - begun)


def tell(what: str, milliseconds: list[float]) -> None:
    p50, p99 = np.quantile(milliseconds, (0.5, 0.99))
    print(f"{what:32} median {p50:7.2f} ms   p99 {p99:7.2f} ms   (n = {len(milliseconds)})")


def latencies(run: Run, store: Store, experiments: int) -> float:
    """Print them, and return the median of the next design in milliseconds."""
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
    tell("both with one write", exchanges(run, store, experiments))
    tell("posterior", posterior)
    tell("surprise", surprise)
    return float(np.median(design))


def exchanges(run: Run, store: Store, experiments: int) -> list[float]:
    dice, times = random.Random(0), []
    for number in range(experiments):
        session = Session.create(run, db=store, seed=number)
        session.propose()
        times += [timed(session.exchange, dice.gauss(0, 1)) for _ in range(run.task.horizon)]
    return times


def load_test(run: Run, path: pathlib.Path, *, rounds: int, shared: bool) -> None:
    store = Store(path)
    sessions = [
        Session.create(run, db=store if shared else path, experiment=f"{shared}-{i}", seed=i)
        for i in range(CLIENTS)
    ]
    sessions[0].warm()
    gate, errors = threading.Barrier(CLIENTS + 1), []

    def client(session: Session) -> None:
        gate.wait()
        try:
            for step in range(1, rounds + 1):
                proposal = (
                    session.propose()
                )  # which was stored with the outcome before it, but for the first
                session.exchange(0.1 * step, proposal=proposal.id, token=f"{step}")
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
        f"{CLIENTS} clients, {how:20} {CLIENTS * rounds / seconds:7.0f} observations/s, as many "
        f"proposals, {rows} rows, "
        f"{len(errors)} errors"
    )
    for session in sessions:
        session.close()
    store.close()


# ---- by HTTP


class Client:
    """One connection that is kept open, as an instrument's would be."""

    def __init__(self, server: dict[str, str]):
        self._connection = http.client.HTTPConnection(
            urllib.parse.urlsplit(server["link"]).netloc, timeout=60
        )
        self._headers = {
            "Authorization": f"Bearer {server['token']}",
            "Content-Type": "application/json",
        }

    def ask(self, path: str, body: Any = None) -> Any:
        """JSON, or text for a page; an error for any status but 200 and 201."""
        data = None if body is None else json.dumps(body)
        self._connection.request("GET" if body is None else "POST", path, data, self._headers)
        answer = self._connection.getresponse()
        text = answer.read()
        if answer.status not in (200, 201):
            raise RuntimeError(f"{answer.status}: {text[:200]!r}")
        return json.loads(text) if "json" in answer.headers["Content-Type"] else text

    def begin(self) -> tuple[str, Any]:
        """The address of a new experiment, and its first design."""
        answer = self.ask("/api/experiments", {})
        return f"/api/experiments/{answer['experiment']}", answer["next"]


@contextlib.contextmanager
def served(run: Run, db: pathlib.Path) -> Iterator[dict[str, str]]:
    """`scorebed serve`, warm."""
    command = [
        sys.executable,
        "-c",
        "from scorebed.cli import main; main()",
        "serve",
        str(run.path),
        "--db",
        str(db),
    ]
    process = subprocess.Popen(
        [*command, "--port", "0", "--json"], stdout=subprocess.PIPE, text=True
    )
    try:
        text = ""
        while not text.rstrip().endswith("}"):
            text += process.stdout.readline()
        server = json.loads(text)
        client = Client(server)
        path, _ = client.begin()
        client.ask(f"{path}/summary")  # waits until all is compiled
        client.ask(f"{path}/observe", {"y": 0.1})
        yield server
    finally:
        process.terminate()
        process.wait()


def http_latencies(server: dict[str, str], experiments: int) -> None:
    client, dice = Client(server), random.Random(0)
    times = []
    for _ in range(experiments):
        path, coming = client.begin()
        while coming is not None:
            body = {"y": dice.gauss(0, 1), "proposal": coming["id"], "token": f"{coming['step']}"}
            begun = time.perf_counter()
            coming = client.ask(f"{path}/observe", body)["next"]
            times.append(1000 * (time.perf_counter() - begun))
    tell("POST /observe, next design", times)


def http_load(server: dict[str, str], rounds: int) -> None:
    gate, errors, times = threading.Barrier(CLIENTS + 1), [], []

    def work() -> None:
        client = Client(server)
        path, coming = client.begin()
        gate.wait()
        try:
            for step in range(1, rounds + 1):
                begun = time.perf_counter()
                body = {"y": 0.1 * step, "proposal": coming["id"], "token": f"{step}"}
                coming = client.ask(f"{path}/observe", body)["next"]
                times.append(1000 * (time.perf_counter() - begun))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    gate.wait()
    begun = time.perf_counter()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - begun
    print(
        f"{CLIENTS} clients by HTTP {len(times) / seconds:19.0f} observations/s, as many "
        f"proposals, {len(errors)} errors"
    )
    tell("one of them, POST /observe", times)


def http_watchers(server: dict[str, str], events: int) -> None:
    """Who watches sees an event after half a period and one answer, whatever the others do."""
    client, dice = Client(server), random.Random(1)
    path, coming = client.begin()
    number = path.rsplit("/", 1)[1]
    entered: dict[int, float] = {}
    delays: list[float] = []
    over = threading.Event()

    def watch(phase: float) -> None:
        mine = Client(server)
        seen = mine.ask(f"{path}/version")["sequence"]
        time.sleep(phase)
        while not over.is_set():
            sequence = mine.ask(f"{path}/version")["sequence"]
            if sequence > seen:
                mine.ask(f"/experiments/{number}/now")
                now = time.perf_counter()
                delays.extend(
                    1000 * (now - at)
                    for event, at in list(entered.items())
                    if seen < event <= sequence
                )
                seen = sequence
            time.sleep(PERIOD)

    watchers = [
        threading.Thread(target=watch, args=(PERIOD * i / WATCHERS,)) for i in range(WATCHERS)
    ]
    for watcher in watchers:
        watcher.start()
    time.sleep(2 * PERIOD)
    for _ in range(events):
        answer = client.ask(f"{path}/observe", {"y": dice.gauss(0, 1), "proposal": coming["id"]})
        entered[answer["sequence"]] = time.perf_counter()
        coming = answer["next"]
        time.sleep(dice.uniform(0.5, 1.5) * PERIOD)
    time.sleep(2 * PERIOD)
    over.set()
    for watcher in watchers:
        watcher.join()
    tell(f"{WATCHERS} watchers see an event", delays)
    print(f"{len(delays)} of {events * WATCHERS} events were seen")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    print(f"scorebed {scorebed.__version__}, {TASK}")
    with tempfile.TemporaryDirectory(dir=".") as folder:  # where the disk is, not in memory
        path = pathlib.Path(folder)
        run = fresh_run(path / "run")
        store = Store(path / "latency.sqlite")
        design = latencies(run, store, 1 if quick else 6)
        if design > SLOWEST and not quick:
            sys.exit(f"the next design takes {design:.0f} ms, expected at most {SLOWEST} ms")
        store.close()
        for shared in (True, False):
            load_test(run, path / f"load-{shared}.sqlite", rounds=3 if quick else 30, shared=shared)
        with served(run, path / "http.sqlite") as server:
            http_latencies(server, 1 if quick else 10)
            http_load(server, rounds=3 if quick else 30)
            http_watchers(server, 3 if quick else 20)


if __name__ == "__main__":
    main()
