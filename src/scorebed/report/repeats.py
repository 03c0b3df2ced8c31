"""What a report says of repeats and of the four ledgers, as text."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from scorebed.report.reading import section
from scorebed.report.tables import NOTHING, count, nats
from scorebed.runs.config import RunConfig


class RepeatRow(NamedTuple):
    """One row of the table of repeats."""

    name: str
    lower: str
    upper: str
    nle: str
    policy: str


def across_repeats(record: Mapping[str, Any], config: RunConfig) -> str:
    """A sentence with the standard errors across repeats; nothing for a single one."""
    lower, upper = (nats(record.get(f"{side}_se_repeats")) for side in ("lower", "upper"))
    if config.repeats == 1 or lower == NOTHING:
        return ""
    errors = f"{lower} of the lower bound" + (
        "" if upper == NOTHING else f", {upper} of the upper bound"
    )
    shared = config.trained_by.upfront_stem and not config.fresh_scores
    over = "policies alone: repeats share what was learned upfront" if shared else "repeats"
    return f"Standard error across {over}: {errors}."


def repeats_rows(record: Mapping[str, Any]) -> list[RepeatRow]:
    """Every repeat by itself; nothing for a single one."""
    found = record.get("repeats")
    rows = []
    for number, values in enumerate(found if isinstance(found, list) else [], start=1):
        lower, upper = (
            f"{nats(values.get(side))} ± {nats(values.get(f'{side}_se'))}"
            for side in ("lower", "upper")
        )
        nle = count(values.get("nle"))
        rows.append(RepeatRow(f"{number:,}", lower, upper, nle, _policy(values)))
    return rows


def trained_with(record: Mapping[str, Any]) -> str:
    """A sentence about the chosen policy, where there was a choice and one repeat."""
    words = _policy(section(record, "chosen"))
    return "" if words == NOTHING else f"The policy is {words}."


def ledger_rows(record: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What was spent besides training; an old record has the bounds alone. Of repeats that share
    anything, what one costs.
    """
    names = {
        "nle_per_repeat": "training of one repeat, in full",
        "nle_selection": "estimates while training, choice among restarts",
        "nle_evaluation": "reported bounds",
        "nle_references": "training of the static reference",
    }
    return [(name, count(record[key])) for key, name in names.items() if key in record]


def _policy(values: Mapping[str, Any]) -> str:
    """The chosen policy by its number, and what trained it."""
    number, stem = values.get("policy_number"), values.get("trained_with")
    words = [] if number is None else [f"number {number + 1:,}"]
    words += [] if stem is None else [f"trained with {stem}"]
    return ", ".join(words) or NOTHING
