"""What the pages of all figures share."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from scorebed.paper.data import described, read
from scorebed.paper.page import Section
from scorebed.paper.statistics import Sample
from scorebed.paper.study import Study
from scorebed.paper.tables import CONTRASTIVE, TIGHT
from scorebed.paper.units import Unit, UnitRecord


def values_of(item: str) -> dict[str, Any]:
    """The table of a figure in `items.toml`."""
    return dict(read("items")["figures"][item])


def lead(item: str, study: Study, units: Sequence[Unit], records: Mapping[str, Any]) -> list[str]:
    """How far the item is, and what the paper's figure shows."""
    return [
        f"Scale {study.scale:g} of the paper's budget, {study.policies_in_words}, seed "
        f"{study.seed}; {len(records)} of {len(units)} pieces.",
        f"The paper's figure: {described(item)}",
    ]


def claims_section(found: Sequence[object], *more: str) -> Section:
    """What of the paper's text holds here."""
    return Section("What holds here", None, [*map(str, found), *more])


def truth_note(result: Mapping[str, Any]) -> str:
    """What the true score was found by, and whether it can be trusted."""
    doubt = f", which is in doubt: {result['truth_doubt']}" if result["truth_doubt"] else ""
    return f"The true score comes by way of '{result['truth']}'{doubt}."


def lower(result: Mapping[str, Any], bound: str) -> Sample:
    """A lower bound over the repeats of a run; NaN where the task has no tight one."""
    kept = [each if bound == CONTRASTIVE else each["tight"] for each in result["repeats"]]
    values = [math.nan if each is None or each["lower"] is None else each["lower"] for each in kept]
    return Sample.of([float(value) for value in values])


def leading(results: Sequence[Mapping[str, Any]]) -> str:
    """The bound that a figure shows: the higher on average, as in the tables. Both are valid."""
    means = {
        bound: math.fsum(lower(result, bound).mean for result in results)
        for bound in (CONTRASTIVE, TIGHT)
    }
    return TIGHT if means[TIGHT] >= means[CONTRASTIVE] else CONTRASTIVE


def results_of(records: Mapping[str, UnitRecord], units: Sequence[Unit]) -> dict[str, Any]:
    """The results of those units that are finished, by name."""
    return {unit.name: records[unit.name].result for unit in units if unit.name in records}
