"""The bench under fire: strangers at every route, the same outcome from many threads at once,
outcomes of all magnitudes.
"""

import math
import re
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from chaos.parts import Found, Part, dice
from chaos.tiny import finished_run
from scorebed.errors import ScorebedError
from scorebed.runs.load import load
from scorebed.session.session import Session
from scorebed.session.store import Store
from scorebed.session.validation import check_design
from scorebed.web.api import make_api
from scorebed.web.app import make_app
from scorebed.web.guard import Door
from scorebed.web.hub import Hub
from scorebed.web.pages import make_pages

TOKEN = "".join(chr(ord("A") + i % 26) for i in range(43))  # no part of it repeats the whole
PORT = 8321
HERE = f"http://127.0.0.1:{PORT}"
OURS = frozenset({"127.0.0.1", "localhost", "[::1]"})
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "NOSUCH")
RIGHT = {"Authorization": f"Bearer {TOKEN}"}
STRANGERS: dict[str, tuple[dict[str, str], tuple[int, ...]]] = {
    "no token": ({}, (401,)),
    "prefix of the token": ({"Authorization": f"Bearer {TOKEN[:-1]}"}, (401,)),
    "token and more": ({"Authorization": f"Bearer {TOKEN}A"}, (401,)),
    "prefix as a cookie": ({"Cookie": f"scorebed-{PORT}={TOKEN[:20]}", "Origin": HERE}, (401,)),
    "wrong Host": ({**RIGHT, "Host": "evil.example"}, (421,)),
    "Host of another port": ({**RIGHT, "Host": "127.0.0.1:80"}, (421,)),
    "wrong Origin": ({**RIGHT, "Origin": "http://evil.example"}, (403,)),
    "no Origin": ({**RIGHT, "Origin": "null"}, (403,)),
}
THREADS = 32


def strangers(work: Path, number: int, cases: int) -> Found:
    """Every route by every method for every stranger; `cases` at most, all if 0."""
    found = Found()
    run = load(finished_run(work))
    hub = Hub(run, db=_fresh(work / f"strangers-{number}.sqlite"))
    try:
        session = hub.begin("bench", seed=1, token=None)
        session.propose()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the name of the package that it wants
            from starlette.testclient import TestClient
        app = make_app(hub, Door(TOKEN, PORT, OURS))
        client = TestClient(app, base_url=HERE)
        asked = [
            (path, method, who) for path in _paths(hub) for method in METHODS for who in STRANGERS
        ]
        for path, method, who in asked[: cases or None]:
            before = session.state.sequence
            headers, expected = STRANGERS[who]
            body = b'{"y": 1.0}' if method in ("POST", "PUT", "PATCH") else None
            kind = {"Content-Type": "application/json"} if body else {}
            answer = client.request(
                method, path, headers={**headers, **kind}, content=body, follow_redirects=False
            )
            found.counts["requests"] += 1
            found.counts[f"{who}: {answer.status_code}"] += 1
            what = f"{method} {path} with {who}: {answer.status_code}"
            # The page's own style, script and words are no secret.
            public = path.startswith("/static/") and answer.status_code in (200, 404, 405)
            outdated = path == "/?token=" and answer.status_code == 403  # a first link
            found.expect(answer.status_code in expected or public or outdated, what)
            found.expect("set-cookie" not in answer.headers, f"{what}, with a cookie")
            found.expect(session.state.sequence == before, f"{what}: something was stored")
        link = client.get("/", params={"token": TOKEN[:-1]})
        found.expect(link.status_code == 403, f"a prefix in the link: {link.status_code}")
    finally:
        hub.close()
    return found


def _paths(hub: Hub) -> list[str]:
    """The routes of the application, of an experiment that exists, and some that are none."""
    values = {"number": "1", "ending": "csv"}
    found = {"/openapi.json", "/docs", "/nowhere", "/static/../app.py", "/?token="}
    for router in (make_api(hub), make_pages(hub)):
        for route in router.routes:
            path = route.path
            for name in re.findall(r"{(\w+)(?::\w+)?}", path):
                path = re.sub(rf"{{{name}(:\w+)?}}", values.get(name, "live.js"), path)
            found.add(path)
    return sorted(found)


def _fresh(path: Path) -> Path:
    """A file of experiments that is not there, though a piece may have been stopped before."""
    for each in path.parent.glob(f"{path.name}*"):
        each.unlink()
    return path


def double_submits(work: Path, number: int, cases: int) -> Found:
    """As many outcomes, each submitted by 32 threads at once: one row each, one answer for all."""
    found = Found()
    run = load(finished_run(work))
    store = Store(_fresh(work / f"double-{number}.sqlite"))
    horizon = run.task.horizon
    try:
        with ThreadPoolExecutor(THREADS) as pool:
            for first in range(0, cases, horizon):
                session = Session.create(run, db=store, experiment=f"e{number}-{first}", seed=first)
                for step in range(1, min(horizon, cases - first) + 1):
                    y = 0.001 * (first + step) - 0.3
                    pending = session.propose()

                    def submit(
                        _: int, session: Session = session, y: float = y, step: int = step
                    ) -> Any:
                        return session.exchange(y, step=step)

                    records = list(pool.map(submit, range(THREADS)))
                    found.counts["outcomes"] += 1
                    found.counts["submits"] += len(records)
                    same = {(r.step, r.y, r.used, r.sequence) for r in records}
                    what = f"experiment {first}, step {step}"
                    found.expect(len(same) == 1, f"{what}: {len(same)} answers")
                    found.expect(records[0].used == pending.design, f"{what}: another design")
                rows = [e for e in store.events(session.experiment.id) if e.kind == "observed"]
                wanted = min(horizon, cases - first)
                found.expect(len(rows) == wanted, f"experiment {first}: {len(rows)} rows")
    finally:
        store.close()
    return found


def magnitudes(work: Path, number: int, cases: int) -> Found:
    """As many outcomes of all magnitudes and signs: the next design is allowed, posterior and
    information are finite, or the outcome is refused in a sentence.
    """
    found, chance = Found(), dice("magnitudes", number)
    run = load(finished_run(work))
    store = Store(_fresh(work / f"magnitudes-{number}.sqlite"))
    horizon = run.task.horizon
    try:
        for first in range(0, cases, horizon):
            session = Session.create(
                run, db=store, experiment=f"e{first}", seed=first, particles=64
            )
            for _ in range(min(horizon, cases - first)):
                y = chance.choice((-1.0, 1.0)) * 10.0 ** chance.uniform(-320, 308)
                if chance.random() < 0.1:
                    y = chance.choice((0.0, -0.0, 5e-324, 1.7976931348623157e308, 3.4e38, 1e-45))
                found.counts["outcomes"] += 1
                session.propose()
                try:
                    session.observe(y)
                except ScorebedError:
                    found.counts["refused"] += 1
                    continue
                found.counts["taken"] += 1
                _look(found, session, y)
    finally:
        store.close()
    return found


def _look(found: Found, session: Session, y: float) -> None:
    state = session.state
    if not state.complete:
        design = session.propose().design
        found.expect(all(map(math.isfinite, design)), f"{y!r}: design {design}")
        try:
            check_design(session.task, design)
        except ScorebedError as error:
            found.faults.append(f"{y!r}: {error}")
    try:
        posterior = session.posterior()
    except ScorebedError as error:  # such as an outcome that no parameter can have made
        found.counts["posteriors that say why there is none"] += 1
        found.expect("Fix: " in str(error), f"{y!r}: {error}")
        return
    found.counts["finite posteriors"] += 1
    found.counts["of these without outcomes that none can have made"] += bool(posterior.left_out)
    marginals = posterior.marginals
    values = [value for each in marginals for value in (each.mean, each.sd, *each.quantiles)]
    found.expect(all(map(math.isfinite, values)), f"{y!r}: posterior {values}")
    gained = session.information()
    found.expect(all(map(math.isfinite, gained)), f"{y!r}: information {gained}")


STRANGERS_AT_THE_DOOR = Part(
    name="strangers",
    title="every route, by every method, for strangers",
    promise="each is refused, and nothing is stored",
    counted="requests",
    piece=strangers,
    pieces=1,
    cases=0,
    small=60,
)
DOUBLE = Part(
    name="submits",
    title="the same outcome from 32 threads at once",
    promise="one row each, and the same answer for all",
    counted="outcomes",
    piece=double_submits,
    pieces=10,
    cases=100,
    small=4,
)
MAGNITUDES = Part(
    name="magnitudes",
    title="outcomes of all magnitudes",
    promise="designs are finite and allowed, and posteriors are finite or say why not",
    counted="outcomes",
    piece=magnitudes,
    pieces=10,
    cases=100,
    small=6,
)
