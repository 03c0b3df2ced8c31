"""kill −9 of training, at random moments and at single accesses to the disk: the run that is
resumed ends with the same bytes as one that was never stopped.
"""

import json
import signal
import time
from pathlib import Path
from typing import Any

from chaos.nursery import Child, Death, Nursery
from chaos.parts import Found, Part, dice

FEW = ["--policy", "static", "--set", "evaluation.references=false"]
# Methods with their settings; the first has a network, a score, and references trained as well.
METHODS = {
    "score": ["score.steps=60", "score.batch=16", "score.width=8", "score.particles=2"],
    "pce": ["pce.inner=3"],
    "varmarg": ["varmarg.steps=30", "varmarg.batch=16", "varmarg.width=8", "varmarg.layers=1"],
}
SHARED = [
    "policy_training.steps=40",
    "policy_training.batch=16",
    "policy_training.monitor_every=20",
    "policy_training.monitor_inner=50",
    "evaluation.outer=32",
    "evaluation.inner=200",
    "evaluation.select_outer=16",
    "evaluation.select_inner=50",
]
MOST_LIVES = 400  # of one run
ACCESSES = 60  # at most, to the next death


def kill_training(work: Path, number: int, cases: int) -> Found:
    """One run, killed as often as `cases`."""
    found, chance = Found(), dice("training", number)
    method = tuple(METHODS)[number % len(METHODS)]
    with Nursery(work) as nursery:
        whole, seconds = _whole(work, method, nursery)
        path, log = work / f"killed-{number}", work / f"deaths-{number}.txt"
        log.write_text("")
        kills = 0
        for _ in range(MOST_LIVES):
            if kills == cases:
                break
            child, by_clock = _start(nursery, path, method, log, chance)
            if by_clock:
                time.sleep(chance.uniform(0, seconds))
                child.kill()
            code = child.wait()
            if code == -signal.SIGKILL:
                kills += 1
                found.counts["kills at a random moment" if by_clock else "at one access"] += 1
            elif code == 0:  # it came to its end before
                _compare(found, path, whole)
                path = work / f"killed-{number}-after-{kills}"
            else:
                found.faults.append(f"{method}, after kill {kills}: {child.said()[-300:]}")
                path = work / f"killed-{number}-after-{kills}"
        if (path / "config.toml").exists():
            child = nursery.start(["resume", str(path)])
            code = child.wait()
            found.expect(code == 0, f"{method}, the last life: {child.said()[-300:]}")
            _compare(found, path, whole)
        found.counts["kills"] += kills
        found.counts.update(log.read_text().splitlines())
    return found


def _start(nursery: Nursery, path: Path, method: str, log: Path, chance: Any) -> tuple[Child, bool]:
    """A life, and whether the clock is to end it."""
    started = (path / "config.toml").exists()
    if path.exists() and not started:  # killed before it was a run
        path.rename(path.with_name(f"{path.name}-{time.monotonic_ns()}"))
    arguments = ["resume", str(path)] if started else command_line(method, path)
    by_clock = chance.random() < 0.5
    death = Death(str(path), chance.randint(1, ACCESSES), str(log))
    return nursery.start(arguments, death=None if by_clock else death), by_clock


def command_line(method: str, path: Path) -> list[str]:
    words = [word for setting in (*METHODS[method], *SHARED) for word in ("--set", setting)]
    words += [] if method == next(iter(METHODS)) else FEW
    named = ["train", "linear-gaussian", "--method", method, "--policies", "2"]
    return [*named, *words, "--out", str(path)]


def _whole(work: Path, method: str, nursery: Nursery) -> tuple[Path, float]:
    """A run that nobody stops, made once, and how long one takes with its programs compiled."""
    path, seconds = work / f"whole-{method}", work / f"whole-{method}.seconds"
    if not seconds.exists():
        for each in (path, path.with_name(f"again-{method}")):  # the control: two of them are equal
            begun = time.monotonic()
            child = nursery.start(command_line(method, each))
            assert child.wait() == 0, child.said()
        assert files(path) == files(each), f"two runs of {method} differ without any kill"
        seconds.write_text(str(time.monotonic() - begun))
    return path, float(seconds.read_text())


def _compare(found: Found, path: Path, whole: Path) -> None:
    ours, theirs = files(path), files(whole)
    differing = [name for name in theirs if ours.get(name) != theirs[name]]
    found.expect(not differing, f"{path.name} differs from {whole.name} in {differing}")
    left = [p.name for p in path.rglob(".tmp-*")]
    found.expect(not left, f"{path.name} has left {left}")
    found.counts["runs compared"] += 1


def files(run: Path) -> dict[str, Any]:
    """All that a run came to: networks byte by byte; figures and curves without their times."""
    found: dict[str, Any] = {p.name: p.read_bytes() for p in sorted(run.glob("*.safetensors"))}
    record = json.loads((run / "record.json").read_text())
    own = ("run", "seconds", "sha256")
    found["record.json"] = {name: value for name, value in record.items() if name not in own}
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    found["metrics.jsonl"] = [
        {k: v for k, v in line.items() if k not in ("seconds", "sha256")} for line in lines
    ]
    return found


TRAINING = Part(
    name="training",
    title="kill −9 of training",
    promise="the resumed run ends with the same bytes as one that was never stopped",
    counted="kills",
    piece=kill_training,
    pieces=15,
    cases=20,
    small=3,
)
