"""How long the first outcomes of a cold server wait to be acknowledged, by the clock on the wall,
while both cores are busy and the rest of the server compiles.

Each server is a fresh `scorebed serve` on a new file of experiments. One second after its link is
printed an experiment is begun as the page begins it (`Prefer: respond-async`), and outcomes are
entered one after another, each as soon as its design is there. What is measured is the time from
the request to the answer, which leaves once the outcome is on disk; waiting for a design is not in
it. Location finding with an untrained policy of the paper's size, as in `benchmarks/live.py`.

    python benchmarks/acknowledged.py              two busy processes beside the server
    python benchmarks/acknowledged.py --busy 0     where the machine is busy anyway
    python benchmarks/acknowledged.py --quick      does it run? One server, two outcomes

The answers of all runs so far are in docs/reliability/acknowledged.json; a quick one is not added.
"""

import contextlib
import datetime
import http.client
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.parse
from typing import Any

from live import fresh_run
from measuring import arguments, table

RECORDS = pathlib.Path(__file__).parents[1] / "docs" / "reliability" / "acknowledged.json"
AFTER_LINK = 1.0  # seconds
PATIENCE = 600.0  # seconds for a link, a design or an answer
GOAL = 200.0  # milliseconds
WITHIN = f"within {GOAL:.0f} ms"
SERVE = "from scorebed.cli import main; main()"
HURRIED = {"Prefer": "respond-async", "Content-Type": "application/json"}


class Bench:
    """A client of one server."""

    def __init__(self, link: str, token: str):
        place = urllib.parse.urlsplit(link)
        self.server = http.client.HTTPConnection(str(place.hostname), place.port, timeout=PATIENCE)
        self.headers = HURRIED | {"Authorization": f"Bearer {token}"}

    def ask(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        """One request and its answer."""
        self.server.request(method, path, json.dumps(body) if body else None, self.headers)
        answer = self.server.getresponse()
        text = answer.read()
        assert answer.status in (200, 201), (answer.status, text[:300])
        found: dict[str, Any] = json.loads(text)
        return found


def of_one_server(run: pathlib.Path, db: pathlib.Path, outcomes: int) -> list[float]:
    """Milliseconds until each of the first outcomes was acknowledged."""
    command = [sys.executable, "-c", SERVE, "serve", str(run), "--port", "0", "--json"]
    with subprocess.Popen([*command, "--db", str(db)], stdout=subprocess.PIPE) as server:
        try:
            assert server.stdout is not None
            said = b""
            while not said.rstrip().endswith(b"}"):
                said += server.stdout.readline()
            told = json.loads(said)
            time.sleep(AFTER_LINK)
            bench, took = Bench(told["link"], told["token"]), []
            answer = bench.ask("POST", "/api/experiments", {"name": "cold", "seed": 0})
            place = f"/api/experiments/{answer['experiment']}"
            for step in range(1, outcomes + 1):
                while answer["next"] is None:
                    time.sleep(0.1)
                    answer = bench.ask("GET", place)
                body = {"y": 0.1 * step, "proposal": answer["next"]["id"], "ask": True}
                begun = time.monotonic()
                answer = bench.ask("POST", f"{place}/observe", body)
                took.append(1000 * (time.monotonic() - begun))
                assert answer["stored"]["step"] == step
            return took
        finally:
            server.kill()


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--servers", type=int, default=5)
    parser.add_argument("--outcomes", type=int, default=8, help="of each server")
    parser.add_argument("--busy", type=int, default=2, help="busy processes beside the server")
    given = parser.parse_args()
    if given.quick:
        given.servers, given.outcomes, given.busy = 1, 2, 0
    idle = [sys.executable, "-S", "-c", "while True: pass"]
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        path = pathlib.Path(folder)
        fresh_run(path / "run")
        for _ in range(given.busy):
            process = stack.enter_context(subprocess.Popen(idle))
            stack.callback(process.kill)
        each = []
        for number in range(given.servers):
            each.append(of_one_server(path / "run", path / f"{number}.sqlite", given.outcomes))
            print(" ".join(f"{ms:.0f}" for ms in each[-1]), "ms", flush=True)
    every = sorted(ms for one in each for ms in one)
    found = {
        "date": datetime.date.today().isoformat(),
        "busy": given.busy,
        "load": round(os.getloadavg()[0], 1),
        "servers": given.servers,
        "outcomes": len(every),
        "first": {
            "median": statistics.median(one[0] for one in each),
            "most": max(o[0] for o in each),
        },
        "all": {"median": statistics.median(every), "most": every[-1]},
        WITHIN: sum(ms <= GOAL for ms in every),
        "milliseconds": [[round(ms, 1) for ms in one] for one in each],
    }
    columns = ("acknowledged after", "outcomes", "median, ms", "longest, ms")
    first = [one[0] for one in each]
    table(columns, [described("first of a server", first), described("all", every)])
    print(f"{found[WITHIN]} of {len(every)} within the goal of {GOAL:.0f} ms")
    if not given.quick:
        kept = json.loads(RECORDS.read_text()) if RECORDS.exists() else []
        RECORDS.write_text(json.dumps([*kept, found], indent=1) + "\n")


def described(name: str, times: list[float]) -> tuple[str, int, str, str]:
    """A row of the table."""
    return name, len(times), f"{statistics.median(times):.0f}", f"{max(times):.0f}"


if __name__ == "__main__":
    main()
