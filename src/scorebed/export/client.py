"""Next design → measure → enter → next design:   python client.py tuesday.jsonl [SEED]

Enter `y`, or `y @ xi` if it was measured at a different design, or `s` if the trial failed. Every
step is one line of the file."""

import json
import math
import sys
from pathlib import Path
from typing import Any

from policy import ABOUT, Policy


def numbers(typed: str, quantities: list[dict[str, Any]]) -> list[float]:
    values = [float(word) for word in typed.split()]
    if len(values) != len(quantities) or not all(map(math.isfinite, values)):
        names = [quantity["name"] for quantity in quantities]
        raise ValueError(f"expected {len(names)} finite numbers: {names}")
    return values


def main(log: Path, seed: int) -> None:
    steps = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    policy = Policy(seed := steps[0]["seed"] if steps else seed)
    while len(steps) < ABOUT["horizon"]:
        xi = policy.design(steps)
        named = zip(ABOUT["designs"], xi, strict=True)
        at = ", ".join(f"{q['name']} {x:.6g} {q['unit']}".rstrip() for q, x in named)
        step = f"step {len(steps) + 1} of {ABOUT['horizon']}"
        y, _, used = input(f"{step}: measure at {at}\n> ").partition("@")
        try:
            failed = y.strip() == "s" and ABOUT["independent"]
            outcome = None if failed else numbers(y, ABOUT["outcomes"])
            xi = numbers(used, ABOUT["designs"]) if used else xi
            steps.append({"seed": seed, "xi": xi, "y": outcome})
            with log.open("a") as file:
                file.write(json.dumps(steps[-1]) + "\n")
        except ValueError as error:
            sys.stderr.write(f"not stored: {error}\n")


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), int((sys.argv[2:] or ["0"])[0]))
    except (EOFError, KeyboardInterrupt):
        sys.exit("\nEverything is stored. The same command continues.")
