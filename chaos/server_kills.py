"""kill −9 of the live server under load: every outcome that was acknowledged is in its file, once,
and the server goes on with it.
"""

import http.client
import json
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from chaos.nursery import Child, Nursery
from chaos.parts import Found, Part, dice
from chaos.training_kills import METHODS, command_line
from scorebed.session.store import Store

CLIENTS = 3
UNDER_LOAD = 0.5  # seconds at most from the first acknowledged outcome to the kill
PATIENCE = 120.0  # seconds for the link to be printed, and for the first outcome
QUIET = 10.0  # seconds of a client for one answer
METHOD = list(METHODS)[1]


def kill_servers(work: Path, number: int, cases: int) -> Found:
    """As many servers on one file of experiments, each killed while clients enter outcomes."""
    found, chance = Found(), dice("server", number)
    db = work / f"server-{number}.sqlite"
    for old in work.glob(f"{db.name}*"):
        old.unlink()
    acknowledged: list[tuple[str, int, float]] = []
    with Nursery(work) as nursery:
        run = _run(work, nursery)
        for life in range(cases):
            child = nursery.start(["serve", str(run), "--port", "0", "--db", str(db), "--json"])
            try:
                token, port = _link(child)
                load = Load(port, token, f"life {number}-{life}")
                began = load.began(PATIENCE)
                time.sleep(chance.uniform(0, UNDER_LOAD) if began else 0)
            finally:
                child.kill()
            code = child.wait()
            load.end()
            found.expect(code == -9, f"life {life} ended by itself: {child.said()[-400:]}")
            found.expect(not load.refused, f"life {life}: {load.refused[:2]}")
            found.expect(began, f"life {life}: no first answer; {load.lost[:2]}")
            acknowledged += load.acknowledged
            found.counts["kills"] += 1
            found.counts["outcomes acknowledged"] += len(load.acknowledged)
            _look(found, db, acknowledged, f"life {life}")
    return found


def _look(found: Found, db: Path, acknowledged: list[tuple[str, int, float]], when: str) -> None:
    """Every outcome that was acknowledged so far is there, once."""
    store = Store(db)
    try:
        there: Counter[tuple[str, int, float]] = Counter()
        for experiment in store.experiments():
            for event in store.events(experiment.id):
                if event.kind == "observed":
                    there[(experiment.name, event.step, event.data["y"][0])] += 1
    finally:
        store.close()
    missing = [each for each in acknowledged if there[each] != 1]
    found.expect(not missing, f"after {when}: {len(missing)} missing or twice: {missing[:3]}")
    twice = [each for each, count in there.items() if count != 1]
    found.expect(not twice, f"after {when}: twice: {twice[:3]}")


class Load:
    """Clients that enter outcomes, each in experiments of its own, until their server is gone."""

    def __init__(self, port: int, token: str, name: str):
        self.port, self.token, self.name = port, token, name
        self.acknowledged: list[tuple[str, int, float]] = []
        self.refused: list[str] = []
        self.lost: list[str] = []
        self._first, self._over = threading.Event(), threading.Event()
        self._threads = [
            threading.Thread(target=self._enter, args=(number,)) for number in range(CLIENTS)
        ]
        for each in self._threads:
            each.start()

    def began(self, timeout: float) -> bool:
        """Wait for the first outcome; whether it came."""
        return self._first.wait(timeout)

    def end(self) -> None:
        """After the server was killed."""
        self._over.set()
        for each in self._threads:
            each.join(2 * QUIET)

    def _enter(self, number: int) -> None:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
            for each in range(1000):
                name = f"{self.name}, client {number}, {each}"
                begun = self._post(connection, "/api/experiments", {"name": name, "seed": each})
                for step in range(1, begun["horizon"] + 1):
                    if self._over.is_set():
                        return
                    y = round(0.001 * each + 0.1 * step - 0.3 * number, 6)
                    path = f"/api/experiments/{begun['experiment']}/observe"
                    self._post(connection, path, {"y": y, "step": step})
                    self.acknowledged.append((name, step, y))
                    self._first.set()
        except (OSError, http.client.HTTPException) as error:
            self.lost.append(repr(error))  # the server is gone

    def _post(self, connection: http.client.HTTPConnection, path: str, body: Any) -> Any:
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        connection.request("POST", path, json.dumps(body), headers)
        answer = connection.getresponse()
        text = answer.read()
        if answer.status not in (200, 201):
            self.refused.append(f"{path} {body}: {answer.status} {text[:200]!r}")
            raise OSError(answer.status)
        return json.loads(text)


def _link(child: Child) -> tuple[str, int]:
    """The token and the port that a server has printed."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            told = json.loads(child.said())
            return told["token"], int(told["link"].split(":")[2].split("/")[0])
        except (ValueError, OSError):
            time.sleep(0.01)
    raise TimeoutError(f"no link in {PATIENCE:.0f} s: {child.said()}")


def _run(work: Path, nursery: Nursery) -> Path:
    """A run whose policy is quickly loaded."""
    path = work / "run"
    if not (path / "record.json").exists():
        child = nursery.start(command_line(METHOD, path))
        assert child.wait() == 0, child.said()
    return path


SERVER = Part(
    name="server",
    title="kill −9 of the live server under load",
    promise="every outcome that was acknowledged is in the file, once",
    counted="kills",
    piece=kill_servers,
    pieces=25,
    cases=20,
    small=2,
)
