"""The tables of a report, as text: bounds, diagnosis, seconds, settings. Values that are missing or
not finite are dashes.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from scorebed.diagnostics.ground_truth import SIZES
from scorebed.report.reading import as_number, section
from scorebed.runs.config import RunConfig, used_settings
from scorebed.runs.evaluation import advantage, ceiling_sentence, headline, tighter, undecided
from scorebed.runs.strict_json import Json

NOTHING = "—"
LONGEST = 400  # characters of a value


class BoundsRow(NamedTuple):
    """One row of the table of bounds, as text."""

    name: str
    designs: str
    lower: str
    upper: str
    advantage: str
    """By how much the policy is ahead, on common draws."""
    outer: str
    inner: str


def bounds_rows(record: Mapping[str, Any], config: RunConfig) -> list[BoundsRow]:
    """The policy and its references; empty without a record."""
    if not record:
        return []
    best = f"the best of {config.policies:,}" if config.policies > 1 else "the only one trained"
    mean = f", mean of {config.repeats:,} repeats" if config.repeats > 1 else ""
    method = config.trained_by
    words = method.designs_in_words + ("" if method.has_own_policy else f", {best}")
    if record.get("trained") is False:
        words = "adaptive designs of a policy that has nothing to train"
    rows = [_row(f"policy ({config.policy})", words + mean, record)]
    others = section(record, "paired") or section(record, "references")
    for name, values in others.items():
        rows.append(_row(str(name), str(values.get("designs", NOTHING)), values))
    return rows


def _row(name: str, designs: str, values: Mapping[str, Any]) -> BoundsRow:
    lead = headline(values)
    lower, upper = (_with_error(lead, side) for side in ("lower", "upper"))
    upper = upper if nats(lead.get("upper")) != NOTHING else NOTHING
    if "cost" in values:
        cost, in_nats = _form(values["cost"], ".4g"), nats(values.get("cost_nats"))
        designs += f"; they cost {cost} on average, {in_nats} nats"
    inner = NOTHING if values.get("tight_lower") is not None else count(values.get("inner"))
    ahead = advantage(values) or NOTHING
    return BoundsRow(name, designs, lower, upper, ahead, count(lead.get("outer")), inner)


def _with_error(values: Mapping[str, Any], name: str) -> str:
    return f"{nats(values.get(name))} ± {nats(values.get(f'{name}_se'))}"


def warnings(record: Mapping[str, Any], path: str) -> list[str]:
    """Sentences about saturated bounds, where no tight ones lead; `path` is the folder of the
    run.
    """
    if record.get("tight_lower") is not None:
        return []
    rows = {"the policy": record} | {
        f"{name} designs": v for name, v in section(record, "references").items()
    }
    commands = {"the policy": tighter(record, path)}
    sentences = [
        ceiling_sentence(values, name, commands.get(name, "")) for name, values in rows.items()
    ]
    return [sentence for sentence in sentences if sentence] + undecided(record)


def diagnosis_rows(diagnosis: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """The figures of `diagnosis.json`: name, value, and its uncertainty."""
    trained = section(section(diagnosis, "gradient"), "trained")
    rows = []
    for where, found in [
        ("", diagnosis),
        *((f", {name} policy", each) for name, each in section(diagnosis, "direction").items()),
    ]:
        for field, what in (("cosine", "cosine"), ("length", "relative length")):
            if field in found:
                error = f"± {_form(found.get(f'{field}_se'), '.2f')}"
                name = f"{what} of the gradient{where}"
                rows.append((name, _form(found.get(field), ".2f"), error))
        if "worst_percent_share" in found:
            median, rms = (
                _form(found.get(f"relative_error_{kind}"), ".2g") for kind in ("median", "rms")
            )
            name = f"relative error of a trajectory's gradient{where}"
            share = _form(found.get("worst_percent_share"), ".0%")
            rows.append((name, median, f"median; {rms} root mean square; worst 1%: {share} of it"))
    if diagnosis.get("truth"):
        most = f"at most {_form(diagnosis.get('relative_bias_upper'), '.2%')}"
        rows += [
            ("gradient bias / gradient norm", _form(diagnosis.get("relative_bias"), ".2%"), most),
            (
                "batch size at which bias outweighs noise",
                _form(trained.get("crossover"), ".3g"),
                "",
            ),
        ]
    for where, error in section(diagnosis, "score_error").items():
        for part, symbol in (("y", "y"), ("xi", "ξ")):
            name = f"relative score error, {symbol}-part, {where} designs"
            rows.append(
                (name, _form(error.get(part), ".3g"), f"± {_form(error.get(f'{part}_se'), '.1g')}")
            )
    rows += _theory_rows(section(diagnosis, "theory"))
    coverage = section(diagnosis, "coverage")
    shares = [as_number(share) for share in coverage.get("outside_by_step", [])]
    worst = max(shares, default=math.nan)
    rows.append(
        (
            "designs not covered by the sampler",
            _form(coverage.get("outside"), ".1%"),
            f"worst step {_form(worst, '.0%')}",
        )
    )
    for where, quantiles in section(diagnosis, "conditioning").items():
        rows.append(
            (
                f"median condition number of ∂y/∂ξ, {where} designs",
                _form(quantiles.get("median"), ".3g"),
                "",
            )
        )
    sizes = [f"{count(diagnosis[key])} {what}" for key, what in SIZES.items() if diagnosis.get(key)]
    rows.append(("ground truth", str(diagnosis.get("truth") or NOTHING), ", ".join(sizes)))
    rows.append(("trajectories", count(diagnosis.get("outer")), ""))
    rows.append(("likelihood evaluations", count(diagnosis.get("nle")), ""))
    return rows


def _theory_rows(theory: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """The paper's bound on the error of the gradient, and the parts of the loss; none where they
    were not asked for.
    """
    bound, rows = section(theory, "error_bound"), []
    if bound:
        sharper = f"{_form(bound.get('sharper'), '.3g')} ± {_form(bound.get('sharper_se'), '.1g')}"
        largest = ", ".join(
            f"L_{symbol} {_form(bound.get(f'lipschitz_{part}'), '.3g')}"
            for part, symbol in (("y", "y"), ("xi", "ξ"))
        )
        value = _form(bound.get("bound"), ".3g")
        rows.append(("bound on the gradient's error", value, f"{largest}; by trajectory {sharper}"))
    for where, parts in section(theory, "loss").items():
        for part, symbol in (("y", "y"), ("xi", "ξ")):
            found = section(parts, part)
            pieces = ", ".join(
                f"{what} {_form(found.get(name), '.3g')}"
                for name, what in (
                    ("squared_bias", "bias²"),
                    ("error_variance", "error variance"),
                    ("target_noise", "target noise"),
                )
            )
            name = f"loss of the {symbol}-part, {where} designs"
            rows.append((name, _form(found.get("loss"), ".3g"), pieces))
    return rows


def seconds_rows(
    record: Mapping[str, Any] | None, metrics: Sequence[Mapping[str, Json]]
) -> list[tuple[str, str]]:
    """The seconds of the record; without one, the latest of each stage, over all interruptions."""
    so_far: dict[str, Any] = {
        str(line["stage"]): line["seconds"] for line in metrics if "seconds" in line
    }
    spent = section(record, "seconds") or so_far
    return [
        (stage, NOTHING if math.isnan(as_number(s)) else f"{as_number(s):,.1f}")
        for stage, s in spent.items()
    ]


def settings_rows(config: RunConfig) -> list[tuple[str, str, str]]:
    """Key, value and meaning of every setting that is no section."""
    return [(key, _plain(value), meaning) for key, value, meaning in used_settings(config)]


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Dotted key → value as text."""
    found: dict[str, str] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = _plain(value)
    return found


def _plain(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int):
        text = NOTHING if value in ("", None, ()) else str(value)
        return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
    return f"{value:,}" if abs(value) >= 10_000 else str(value)


def nats(value: object) -> str:
    """Information, as text."""
    number = as_number(value)
    return NOTHING if math.isnan(number) else f"{number:.3f}"


def _form(value: object, form: str) -> str:
    number = as_number(value)
    return format(number, form) if math.isfinite(number) else NOTHING


def count(value: object) -> str:
    """A whole number, as text."""
    number = as_number(value)
    return (
        NOTHING
        if math.isnan(number)
        else f"{number:,.0f}"
        if isinstance(value, float)
        else f"{value:,}"
    )
