"""Models that nobody tuned for, each from its file to a policy: python docs/models.py [NAME …]

Runs `check` and `train --minutes 5` on the files of tests/models, one after the other, keeps what
came out in docs/models/NAME.json and writes the table of docs/models.md from all of these.
"""

import argparse
import json
import math
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time
from typing import Any

HERE = pathlib.Path(__file__).parent
RECORDS, PAGE = HERE / "models", HERE / "models.md"
MODELS = HERE.parent / "tests" / "models"
KEPT = ("method", "policy", "bound", "lower", "lower_se", "upper", "upper_se", "outer", "inner")
TIGHT = ("bound", "lower", "lower_se", "upper", "upper_se", "outer")
OF_REFERENCE = ("lower", "lower_se", "advantage", "advantage_se")
REFERENCES = ("random", "spaced", "static")
SURE = 2.0  # standard errors of a difference that is called one
BEGIN, END = "<!-- table -->\n", "<!-- end table -->\n"


def names() -> dict[str, str]:
    """The object in each file."""
    found = {}
    for path in sorted(MODELS.glob("*.py")):
        if path.stem.startswith(("__", "test_")):
            continue
        lines = path.read_text().splitlines()
        classes = [line[6:].split("(")[0] for line in lines if line.startswith("class ")]
        found[path.stem] = classes[-1] if classes else "task"
    return found


def run(*words: str) -> tuple[dict[str, Any] | None, str]:
    """What a command answers, or why it failed."""
    program = [sys.executable, "-c", "from scorebed.cli import main; main()"]
    done = subprocess.run([*program, *words, "--json"], capture_output=True, text=True, check=False)
    if done.returncode:
        return None, done.stderr.strip().splitlines()[-1]
    return json.loads(done.stdout), ""


def processor_seconds() -> float:
    """Of all commands so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def record(name: str, target: str, minutes: float, more: list[str]) -> dict[str, Any]:
    """Check and train one model."""
    path = str(MODELS / f"{name}.py") + f":{target}"
    load, begun, used = os.getloadavg()[0], time.monotonic(), processor_seconds()
    with tempfile.TemporaryDirectory() as folder:
        sound, why = run("check", path, "--out", f"{folder}/check.png")
        found: dict[str, Any] = {
            "model": f"tests/models/{name}.py:{target}",
            "minutes": minutes,
            "settings": more,
            "findings": sound["findings"] if sound else [why],
        }
        checked, used_by_check = time.monotonic(), processor_seconds() - used
        trained, why = run(
            "train", path, "--minutes", f"{minutes:g}", "--out", f"{folder}/run", *more
        )
    taken = time.monotonic() - checked
    found |= {
        "seconds": {"check": round(checked - begun, 1), "train": round(taken, 1)},
        "processor_seconds": round(processor_seconds() - used),
        "processor_seconds_of_check": round(used_by_check),
        "load": [round(load, 1), round(os.getloadavg()[0], 1)],
    }
    if trained is None:
        return found | {"error": why}
    found |= {key: trained[key] for key in KEPT if key in trained}
    tight = trained.get("tight_lower") is not None
    if tight:
        found |= {key: trained[f"tight_{key}"] for key in TIGHT}
    found["saturated"] = trained["saturated"]
    compared = (trained.get("paired") or {}) if tight else trained["references"]
    found["references"] = {
        other: {key: compared[other][key] for key in OF_REFERENCE}
        for other in trained["references"]
    }
    return found | {"ended_by_clock": trained.get("ended_by_clock", {})}


def pair(value: float, error: float) -> str:
    digits = 2 if error >= 0.01 else 3
    return f"{value:.{digits}f} ± {error:.{digits}f}"


def ahead(found: dict[str, Any], other: str) -> str:
    each = found["references"].get(other)
    return pair(each["advantage"], each["advantage_se"]) if each else "–"


def verdict(found: dict[str, Any]) -> str:
    """What the differences say, in words."""
    if not found["references"]:
        return "not compared: all contrastive bounds are at their ceiling"
    words = {"lost": [], "like": []}  # type: dict[str, list[str]]
    for other, each in found["references"].items():
        sigma = each["advantage"] / max(each["advantage_se"], 1e-12)
        if sigma < SURE:
            words["lost" if sigma < -SURE else "like"].append(other)
    said = [f"loses to {' and '.join(words['lost'])}"] if words["lost"] else []
    said += [f"like {' and '.join(words['like'])}"] if words["like"] else []
    return "; ".join(said) or "ahead of all"


def row(name: str, found: dict[str, Any]) -> str:
    link = f"[{name.replace('_', ' ')}](../tests/models/{name}.py)"
    if "error" in found:
        return f"| {link} | {found['error']} |" + " |" * 7
    cells = [
        link,
        f"{found['method']}, {found['policy']}",
        pair(found["lower"], found["lower_se"]),
        *(ahead(found, other) for other in REFERENCES),
        verdict(found),
        f"{found['outer']}",
        f"{found['seconds']['train']:.0f} ({found['processor_seconds'] or '–'})",
        f"{max(found['load']):.0f}",
    ]
    return f"| {' | '.join(cells)} |"


def write_page() -> None:
    """The table, between its marks."""
    records = {path.stem: json.loads(path.read_text()) for path in sorted(RECORDS.glob("*.json"))}
    heads = ("model", "method, policy", "lower bound", *(f"− {each}" for each in REFERENCES))
    heads = (*heads, "in words", "N", "s of training (processor, with `check`)", "load")
    lines = [f"| {' | '.join(heads)} |", "|---|---|" + "---:|" * 4 + "---|" + "---:|" * 3]
    lines += [row(name, found) for name, found in records.items()]
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(before + BEGIN + "\n".join(lines) + "\n" + END + after)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help="files of tests/models, without .py; all of them")
    parser.add_argument("--minutes", type=float, default=5.0, help="of each training")
    parser.add_argument("--set", action="append", default=[], help="passed on to `train`")
    parser.add_argument("--table", action="store_true", help="write the table, run nothing")
    chosen, known = parser.parse_args(), names()
    assert math.isfinite(chosen.minutes)
    if set(chosen.names) - set(known):
        parser.error(f"expected some of {', '.join(known)}")
    RECORDS.mkdir(exist_ok=True)
    for name in [] if chosen.table else chosen.names or known:
        more = [word for setting in chosen.set for word in ("--set", setting)]
        found = record(name, known[name], chosen.minutes, more)
        (RECORDS / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n")
        print(
            f"{name}: {found.get('error') or pair(found['lower'], found['lower_se'])}", flush=True
        )
    write_page()


if __name__ == "__main__":
    main()
