"""Next design → measure → enter → next design:   python client.py tuesday.jsonl [SEED]

Enter `y`, or `y @ xi` if it was measured at a different design, or `s` if the trial failed. Every
step is one line of the file."""

import json
import math
import sys
from pathlib import Path

from policy import ABOUT, ExportedPolicy

DESIGN, OUTCOME, T = ABOUT["designs"], ABOUT["outcomes"], ABOUT["horizon"]


def numbers(typed: str, quantities: list[dict]) -> list[float]:
    values = [float(word) for word in typed.split()]
    if len(values) != len(quantities) or not all(map(math.isfinite, values)):
        raise ValueError(f"expected finite numbers: {', '.join(q['name'] for q in quantities)}")
    return values


def main(log: Path, seed: int) -> None:
    steps = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    policy = ExportedPolicy(seed := steps[0]["seed"] if steps else seed)
    while len(steps) < T:
        xi = policy.design(steps)
        at = ", ".join(f"{q['name']} {xi[i]:.6g} {q['unit']}".strip() for i, q in enumerate(DESIGN))
        y, _, used = input(f"step {len(steps) + 1} of {T}: measure at {at}\n> ").partition("@")
        try:
            outcome = None if y.strip() == "s" and ABOUT["independent"] else numbers(y, OUTCOME)
            steps.append({"seed": seed, "xi": numbers(used, DESIGN) if used else xi, "y": outcome})
            with log.open("a") as file:
                file.write(json.dumps(steps[-1]) + "\n")
        except ValueError as error:
            sys.stderr.write(f"not stored: {error}\n")


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), int((sys.argv[2:] or ["0"])[0]))
    except (EOFError, KeyboardInterrupt):
        sys.exit("\nEverything is stored. The same command continues.")
