"""Record what a commit computes in the golden runs, for `compare.py` to hold beside what another
one computes.

    python tests/golden/record.py --source DIR --out FILE.json [--only PATTERN…] [--jobs 2] [--cache
    DIR] [--go-on]

`DIR/src` is the source that runs. Only its command line and the files of its runs are looked at, so
that commits compare whatever they look like inside. With the same `--cache`, two recordings share
compiled programs: what is untouched gives equal bits."""

import argparse
import concurrent.futures
import fnmatch
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from cases import COMMANDS, NAMES, SESSIONS, STOPPED, STOPS, TRAINS, Train
from safetensors.numpy import load_file

MAIN = "from scorebed.cli import main; main()"
# What differs from run to run, or from folder to folder.
VOLATILE = ("run", "seconds", "db", "created", "at", "report")
SMALL = 64  # numbers of a leaf that is recorded whole
PROJECTIONS = 8
PATIENCE = 600.0  # seconds for one command

Case = dict[str, Any]


class Answer(NamedTuple):
    """How a command ended, and what it wrote."""

    code: int
    out: str
    err: str


class Workshop:
    """A folder in which runs of one commit are made, each once."""

    def __init__(self, source: Path, folder: Path, cache: Path):
        self.folder = folder
        self._locks: dict[str, threading.Lock] = defaultdict(threading.Lock)
        self._environment = os.environ | {
            "PYTHONPATH": str(source / "src"),
            "JAX_COMPILATION_CACHE_DIR": str(cache),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.2",
        }

    def start(self, *words: str) -> "subprocess.Popen[str]":
        """A command in a process of its own."""
        pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        command = [sys.executable, "-c", MAIN, *words]
        return subprocess.Popen(command, env=self._environment, cwd=self.folder, text=True, **pipes)

    def answer(self, *words: str, typed: Sequence[str] = ()) -> Answer:
        """The same, carried out."""
        process = self.start(*words)
        out, err = process.communicate("".join(f"{line}\n" for line in typed), timeout=PATIENCE)
        return Answer(process.returncode, out, err)

    def version(self) -> str:
        """Where the library is imported from."""
        command = [sys.executable, "-c", "import scorebed; print(scorebed.__file__)"]
        return subprocess.run(
            command, env=self._environment, text=True, capture_output=True, check=True
        ).stdout.strip()

    def train(self, name: str, train: Train | None = None) -> tuple[Path, Answer]:
        """The run of that name and what its command answered; made by the first who asks."""
        path = self.folder / name.replace("/", "_")
        kept = path.with_suffix(".answer")
        with self._locks[name]:
            if not kept.exists():
                words = [self._filled(word) for word in (train or TRAINS[name]).command()]
                kept.write_text(json.dumps(self.answer(*words, "--out", str(path), "--json")))
        return path, Answer(*json.loads(kept.read_text()))

    def _filled(self, word: str) -> str:
        found = re.fullmatch(r"\{run (.*)\}", word)
        return str(self.train(found[1])[0]) if found else word


# ---- what is taken from a run or an answer


def plain(document: Any) -> Case:
    """A document split by how it is compared: exact values, words, bounds with their errors, other
    numbers.
    """
    case: Case = {"exact": {}, "words": {}, "bounds": {}, "numbers": {}}
    for path, value, error in _leaves(document, ""):
        if isinstance(value, str) and " " in value:
            case["words"][path] = value
        elif not isinstance(value, float):
            case["exact"][path] = value
        elif error is not None:
            case["bounds"][path] = [value, error]
        elif not path.endswith("_se"):
            case["numbers"][path] = value
    return case


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any, float | None]]:
    """Paths, values and, where there is one, the standard error of a value."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            if key in VOLATILE:
                continue
            error = value.get(f"{key}_se")
            if isinstance(item, float) and isinstance(error, float):
                yield f"{path}/{key}", item, error
            else:
                yield from _leaves(item, f"{path}/{key}")
    elif isinstance(value, list):
        yield f"{path}/length", len(value), None
        for number, item in enumerate(value):
            yield from _leaves(item, f"{path}/{number}")
    else:
        yield path, value, None


def arrays(file: Path, small: int = SMALL) -> dict[str, Case]:
    """The leaves of a file: hash, norm, projections, and the numbers themselves or the first of
    them.
    """
    return {name: _leaf(array, small) for name, array in sorted(load_file(file).items())}


def _leaf(array: np.ndarray, small: int) -> Case:
    digest = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
    flat = array.astype(np.float64).ravel()
    leaf = {
        "shape": list(array.shape),
        "dtype": array.dtype.name,
        "sha256": digest,
        "norm": float(np.linalg.norm(flat)),
    }
    if flat.size <= small:
        return leaf | {"values": flat.tolist()}
    # The mean square of the projections of a difference is on average its squared norm. The stream
    # of RandomState is frozen.
    directions = np.random.RandomState(0).standard_normal((PROJECTIONS, flat.size))
    return leaf | {"first": flat[:8].tolist(), "projections": (directions @ flat).tolist()}


def metrics(path: Path) -> dict[str, Any]:
    """Of every stage the number of its last step, and what was measured at its first and its last
    one.
    """
    stages: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in (path / "metrics.jsonl").read_text().splitlines():
        record = json.loads(line)
        stages[record.pop("stage")].append(record)
    return {
        stage: {
            "steps": lines[-1]["step"],
            "first": lines[0],
            "last": lines[-1],
            "lines": len(lines),
        }
        for stage, lines in stages.items()
    }


def of_run(path: Path, answer: Answer, *, small: int = SMALL) -> Case:
    """All that is compared of a run; leaves of at most `small` numbers in full."""
    if answer.code:
        return plain({"exit": answer.code, "error": answer.err})
    record = json.loads((path / "record.json").read_text())
    record.pop("sha256", None)  # of the file, since there are checksums
    told = json.loads(answer.out)
    choices = {
        file.stem: json.loads(file.read_text()) for file in sorted(path.glob("choice-*.json"))
    }
    document = {"exit": 0, **record, "choices": choices, "metrics": metrics(path)}
    document["told as recorded"] = all(
        told[name] == record[name] for name in record if name not in VOLATILE
    )
    files = sorted(path.glob("*.safetensors"))
    return plain(document) | {
        "arrays": {
            f"{file.stem}/{n}": leaf for file in files for n, leaf in arrays(file, small).items()
        }
    }


# ---- the cases


def train_case(shop: Workshop, name: str) -> Case:
    """A run of its own."""
    return of_run(*shop.train(name))


def command_case(shop: Workshop, name: str) -> Case:
    """A command on a run."""
    run, before, after = COMMANDS[name]
    path, _ = shop.train(run)
    answer = shop.answer(*before, str(path), *after, "--json")
    if answer.code:
        return plain({"exit": answer.code, "error": answer.err})
    document = {"exit": 0, **json.loads(answer.out)}
    if before == ["report"]:
        page = (path / "report.html").read_text()
        headings = re.findall(r"<h[12][^>]*>(.*?)</h[12]>", page, flags=re.DOTALL)
        document["headings"] = [
            f"heading: {text}" for text in headings
        ]  # words may change, their number may not
    return plain(document)


def nle_case(shop: Workshop, name: str) -> Case:
    """A table of the paper's budgets."""
    answer = shop.answer("nle", name.removeprefix("nle/"), "--json")
    return plain({"exit": answer.code, **json.loads(answer.out or "{}")})


def session_case(shop: Workshop, name: str) -> Case:
    """An experiment by typed lines."""
    run, options, lines = SESSIONS[name]
    path, _ = shop.train(run)
    db = shop.folder / f"{name.replace('/', '_')}.sqlite"
    words = [
        "live",
        str(path),
        "--db",
        str(db),
        "--experiment",
        "bench",
        "--seed",
        "3",
        *options,
        "--json",
    ]
    answer = shop.answer(*words, typed=lines)
    if answer.code:
        return plain({"exit": answer.code, "error": answer.err})
    case = plain({"exit": 0, **json.loads(answer.out)})
    case["words"]["/dialogue"] = answer.err.replace(str(shop.folder), "FOLDER")
    return case


def stopped_case(shop: Workshop, name: str) -> Case:
    """A run that is stopped in its second stage and resumed, beside one that is not."""
    whole, answer = shop.train("stopped", STOPPED)
    path = shop.folder / name.replace("/", "_")
    process = shop.start(*STOPPED.command(), "--out", str(path), "--json")
    killed = name.endswith("killed")

    def far_enough() -> bool:
        if killed:
            return any(path.glob("checkpoints/policy-0-0/step-*"))
        lines = path / "metrics.jsonl"
        return lines.exists() and '"stage": "policy-0-0"' in lines.read_text()

    deadline = time.monotonic() + PATIENCE
    while process.poll() is None and not far_enough() and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL if killed else signal.SIGINT)
    process.communicate()
    middle = (path / "record.json").exists()
    at = sorted(folder.name for folder in path.glob("checkpoints/policy-0-0/step-*"))
    resumed = shop.answer("resume", str(path), "--json")
    pair = [of_run(*run) for run in ((whole, answer), (path, resumed))]
    if resumed.code or answer.code:
        return pair[1] if resumed.code else pair[0]
    same = [[leaf["sha256"] for leaf in case["arrays"].values()] for case in pair]
    # Thousands of steps let the smallest difference between two commits grow: parameters are
    # compared within one of them.
    return plain(
        {
            "exit": process.returncode,
            "ended before it was stopped": middle,
            "a checkpoint in the middle": bool(at) and at[0] != "step-000008000",
            "the same parameters": same[0] == same[1],
            "the same bounds": pair[0]["bounds"] == pair[1]["bounds"],
            "the same counts": pair[0]["exact"] == pair[1]["exact"],
            "counts": pair[1]["exact"],
        }
    )


def make_case(shop: Workshop, name: str) -> Case:
    """The case of that name, with the seconds that it took."""
    begun = time.monotonic()
    kinds: list[tuple[bool, Callable[[Workshop, str], Case]]] = [
        (name in TRAINS, train_case),
        (name in COMMANDS, command_case),
        (name in SESSIONS, session_case),
        (name in STOPS, stopped_case),
        (name.startswith("nle/"), nle_case),
    ]
    case = next(make for fits, make in kinds if fits)(shop, name)
    return case | {"seconds": round(time.monotonic() - begun, 1)}


def main() -> None:
    """Record, one case after another or a few at once; the file is written anew after each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--source", type=Path, required=True, help="a checkout; its src/ is what runs"
    )
    parser.add_argument("--out", type=Path, required=True, help="the JSON file to write")
    parser.add_argument(
        "--only", nargs="+", default=["*"], help="names of cases, or patterns such as 'budget/*'"
    )
    parser.add_argument("--jobs", type=int, default=1, help="cases at a time")
    parser.add_argument(
        "--cache", type=Path, help="a folder of compiled programs; a temporary one if left out"
    )
    parser.add_argument(
        "--go-on", action="store_true", help="keep the cases that the JSON file has already"
    )
    asked = parser.parse_args()
    names = [
        name for name in NAMES if any(fnmatch.fnmatchcase(name, pattern) for pattern in asked.only)
    ]
    if not names:
        parser.error(f"no case is named {' or '.join(asked.only)}; there are {', '.join(NAMES)}")
    cases: dict[str, Case] = (
        json.loads(asked.out.read_text()) if asked.go_on and asked.out.exists() else {}
    )
    with tempfile.TemporaryDirectory(prefix="golden-") as folder:
        shop = Workshop(
            asked.source.resolve(),
            Path(folder),
            (asked.cache or Path(folder) / "compiled").resolve(),
        )
        sys.stderr.write(f"recording {shop.version()}\n")
        with concurrent.futures.ThreadPoolExecutor(asked.jobs) as pool:
            running = {
                pool.submit(make_case, shop, name): name for name in names if name not in cases
            }
            for done in concurrent.futures.as_completed(running):
                name = running[done]
                cases[name] = done.result()
                sys.stderr.write(f"{len(cases)}/{len(names)} {name}: {cases[name]['seconds']} s\n")
                ordered = {each: cases[each] for each in NAMES if each in cases}
                asked.out.write_text(json.dumps(ordered, indent=1, allow_nan=True) + "\n")


if __name__ == "__main__":
    main()
