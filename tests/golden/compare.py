"""Hold two recordings of the golden runs beside each other: `python tests/golden/compare.py
OLD.json NEW.json`.

Exact values (counts, seeds, names, the chosen restart) are equal; parameters agree to 1e-5 of their
norm, leaf by leaf; bounds to a tenth of their standard error; other numbers (losses, posteriors) to
1e-4. What breaks a rule is a violation, and the exit code is 1. Changed words, new fields and
renamed leaves are listed and allowed. A meant change is allowed by `--accept PATTERN`, held against
"CASE KEY", as in `--accept 'budget/* /nle*'`; it is listed all the same."""

import argparse
import fnmatch
import json
import math
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

PARAMETERS, NUMBERS, ERRORS, TINY = 1e-5, 1e-4, 0.1, 1e-7


class Difference(NamedTuple):
    """What differs between two cases; a violation unless it is allowed."""

    key: str
    what: str
    allowed: bool = False


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Difference]:
    """All that differs beyond its tolerance."""
    for kind in ("exact", "words", "bounds", "numbers"):
        before, after = old.get(kind, {}), new.get(kind, {})
        yield from (
            Difference(key, f"missing, was {_short(before[key])}")
            for key in before
            if not _anywhere(key, new)
        )
        yield from (
            Difference(key, f"new, {_short(after[key])}", True)
            for key in after
            if not _anywhere(key, old)
        )
        for key in before:
            if key in after:
                yield from _value(kind, key, before[key], after[key])
            elif _anywhere(key, new):
                yield Difference(key, "of another type")
    yield from _arrays(old.get("arrays", {}), new.get("arrays", {}))


def equal_bits(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether no number differs at all."""
    return all(old.get(kind) == new.get(kind) for kind in ("exact", "bounds", "numbers", "arrays"))


def _anywhere(key: str, case: Mapping[str, Any]) -> bool:
    return any(key in case.get(kind, {}) for kind in ("exact", "words", "bounds", "numbers"))


def _value(kind: str, key: str, a: Any, b: Any) -> Iterator[Difference]:
    if kind == "bounds":
        (value, error), (other, other_error) = a, b
        if not all(
            abs(x - y) <= ERRORS * error + TINY for x, y in ((value, other), (error, other_error))
        ):
            yield Difference(key, f"{value:.6g} ± {error:.2g} → {other:.6g} ± {other_error:.2g}")
    elif kind == "numbers":
        both_none = math.isnan(a) and math.isnan(b)
        if not (both_none or a == b or abs(a - b) <= NUMBERS * abs(a) + TINY):
            yield Difference(key, f"{a:.8g} → {b:.8g}")
    elif a != b:
        yield Difference(key, f"{_short(a)} → {_short(b)}", kind == "words")


def _arrays(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Difference]:
    """Leaves by name; one that is gone may have another name, if its numbers are still in the same
    file.
    """
    unclaimed = [name for name in new if name not in old]
    for name, leaf in old.items():
        if name in new:
            if not _same_leaf(leaf, new[name]):
                yield Difference(
                    name, f"parameters differ by {_distance(leaf, new[name])} of their norm"
                )
            continue
        alike = [
            other
            for other in unclaimed
            if other.split("/")[0] == name.split("/")[0] and _same_leaf(leaf, new[other])
        ]
        if alike:
            unclaimed.remove(alike[0])
            yield Difference(name, f"is now {alike[0]}", True)
        else:
            yield Difference(name, "no such parameters")
    yield from (Difference(name, "parameters that were not there") for name in unclaimed)


def _same_leaf(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    if a["shape"] != b["shape"] or a["dtype"] != b["dtype"]:
        return False
    return a.get("sha256", "") == b.get("sha256") or _off(a, b) <= PARAMETERS * b["norm"] + TINY


def _off(a: Mapping[str, Any], b: Mapping[str, Any]) -> float:
    """The norm of the difference of two leaves, estimated by projections where they are large."""
    if "values" in a:
        return math.dist(a["values"], b["values"])
    return math.dist(a["projections"], b["projections"]) / math.sqrt(len(a["projections"]))


def _distance(a: Mapping[str, Any], b: Mapping[str, Any]) -> str:
    if a["shape"] != b["shape"] or a["dtype"] != b["dtype"]:
        return f"their shape, {a['dtype']}{a['shape']} → {b['dtype']}{b['shape']}, not a part"
    return f"{_off(a, b) / (b['norm'] or 1.0):.2g}"


def _short(value: Any) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= 60 else text[:57] + "..."


def main() -> None:
    """Print a line for every case, and below it what differs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument(
        "--accept", nargs="*", default=[], metavar="PATTERN", help="differences that are meant"
    )
    asked = parser.parse_args()
    old, new = (json.loads(path.read_text()) for path in (asked.old, asked.new))
    violations = 0
    for name in sorted({*old, *new}):
        if name not in old or name not in new:
            side = "the new" if name in old else "the old"
            sys.stdout.write(f"{name:<40} not in {side} recording\n")
            violations += name in old
            continue
        found = list(differences(old[name], new[name]))
        kept = [
            each._replace(allowed=each.allowed or _accepted(name, each, asked.accept))
            for each in found
        ]
        wrong = sum(not each.allowed for each in kept)
        violations += wrong
        state = (
            f"{wrong} violations"
            if wrong
            else "equal bits"
            if equal_bits(old[name], new[name])
            else "within tolerance"
        )
        sys.stdout.write(f"{name:<40} {state}\n")
        for each in kept:
            sys.stdout.write(
                f"    {'allowed' if each.allowed else 'WRONG':<8} {each.key}: {each.what}\n"
            )
    sys.stdout.write(f"{violations} violations in {len(old)} cases\n")
    sys.exit(1 if violations else 0)


def _accepted(name: str, difference: Difference, patterns: list[str]) -> bool:
    return any(fnmatch.fnmatchcase(f"{name} {difference.key}", pattern) for pattern in patterns)


if __name__ == "__main__":
    main()
