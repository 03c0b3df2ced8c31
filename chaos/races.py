"""Several processes begin one run in one folder at the same moment: one has it, the others are told
who.
"""

import fcntl
import json
import os
import time
from pathlib import Path

from chaos.nursery import Nursery
from chaos.parts import Found, Part
from chaos.tiny import finished_run
from scorebed.errors import RunFolderError
from scorebed.runs.config import from_values, read_toml
from scorebed.runs.folder import CONFIG, RunFolder

RACERS = 4
PATIENCE = 30.0  # seconds that a winner waits for the others to have tried
SECONDS = 1.0  # of processor time, within which a loser has left


def races(work: Path, number: int, cases: int) -> Found:
    """As many races: half for a folder that is not there, half for a run that nobody owns."""
    found, run = Found(), finished_run(work)
    config = from_values(read_toml(run / CONFIG))
    with Nursery(work) as nursery:
        for case in range(cases):
            path = work / f"race-{number}-{case}-{time.monotonic_ns()}"
            begun = case % 2 == 1
            if begun:
                RunFolder.create(path, config).release()
            told = _race(nursery, work, [str(path), str(run / CONFIG), str(begun)])
            found.counts["races"] += 1
            found.counts["for a run that is there" if begun else "for a new folder"] += 1
            found.counts["losers"] += sum(not each["won"] for each in told)
            _judge(found, case, path, told, begun=begun)
    return found


def _judge(found: Found, case: int, path: Path, told: list[dict], *, begun: bool) -> None:
    winners = [each for each in told if each["won"]]
    found.expect(len(winners) == 1, f"race {case}: {len(winners)} winners")
    for each in told:
        if not each["won"]:
            found.expect(each["seconds"] < SECONDS, f"race {case}: {each['seconds']} s to lose")
            named = any(str(winner["pid"]) in each["said"] for winner in winners)
            right = named or (not begun and "one that exists" in each["said"])
            found.expect(right, f"race {case}: {each['said']}")
    lines = RunFolder.open(path).read_metrics()
    found.expect(len(lines) == len(winners), f"race {case}: {len(lines)} lines")


def _race(nursery: Nursery, work: Path, arguments: list[str]) -> list[dict]:
    """What every racer tells. The gun is a lock that all of them wait for."""
    with (work / "gun").open("w") as gun:
        fcntl.flock(gun, fcntl.LOCK_EX)
        racers = [
            nursery.start([*arguments, gun.name], call="chaos.races:take") for _ in range(RACERS)
        ]
        fcntl.flock(gun, fcntl.LOCK_UN)
    codes = [each.wait(60) for each in racers]
    assert not any(codes), [each.said() for each in racers]
    return [json.loads(each.said().splitlines()[-1]) for each in racers]


def take(arguments: list[str]) -> int:
    """What a racer does: take the folder, write, and hold it until the others have tried."""
    path, config_file, begun, gun_file = arguments
    config = from_values(read_toml(Path(config_file)))
    with open(gun_file) as gun:
        fcntl.flock(gun, fcntl.LOCK_SH)
    start = time.process_time()
    told, tried = {"pid": os.getpid(), "won": True, "said": ""}, Path(f"{path}.tried")
    tried.touch()
    try:
        folder = (
            RunFolder.open(Path(path)).acquire()
            if begun == "True"
            else RunFolder.create(Path(path), config)
        )
        folder.append_metrics({"stage": "score", "step": os.getpid()})
        deadline = time.monotonic() + PATIENCE
        while tried.stat().st_size < RACERS - 1 and time.monotonic() < deadline:
            time.sleep(0.01)
        folder.release()
    except RunFolderError as error:
        told |= {"won": False, "said": str(error)}
        with tried.open("ab") as file:
            file.write(b"x")
    print(json.dumps(told | {"seconds": time.process_time() - start}))
    return 0


RACES = Part(
    name="races",
    title="races for one folder",
    promise="one of four processes has it; the others are told in a sentence at once",
    counted="races",
    piece=races,
    pieces=5,
    cases=20,
    small=2,
)
