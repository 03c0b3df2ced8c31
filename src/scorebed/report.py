"""The report of a run: one HTML file that needs nothing beside it, neither network nor scripts.

    bounds beside those of the references → training curves → experiments of the policy → diagnosis of the score → NLE → seconds
    → settings → versions

A run that is not finished has a report too: each section shows what is there, or says what is missing.
Needs the extra `plots`.
"""

import base64
import dataclasses
import datetime
import io
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax.random as jr
import jinja2
import numpy as np
from markupsafe import Markup

from scorebed.errors import RunFolderError, ScorebedError
from scorebed.keys import named
from scorebed.rollout import simulate
from scorebed.runs.artifacts import load_policy
from scorebed.runs.config import RunConfig, describe
from scorebed.runs.durable import replace_file
from scorebed.runs.evaluation import in_words
from scorebed.runs.folder import ENV, METRICS, RunFolder
from scorebed.runs.own import OwnTask, task_of
from scorebed.runs.strict_json import Json
from scorebed.tasks.base import Task

try:
    import matplotlib
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, NullLocator, ScalarFormatter

    from scorebed.draw import FAINT, INK, LINES, SOFT, draw_experiments
except ModuleNotFoundError as missing:
    raise ScorebedError(
        f"the figures of a report, got no package '{missing.name}', expected matplotlib. "
        "Fix: pip install 'scorebed[plots]'."
    ) from missing

REPORT, RECORD = "report.html", "record.json"
DIAGNOSIS, DIAGNOSIS_PICTURE = "diagnosis.json", "diagnosis.png"
EXPERIMENT_SEEDS = (0, 1, 2)
SATURATED = 0.05
NOTHING = "—"
LONGEST = 400  # characters of a value


class Picture(NamedTuple):
    """A figure as inline SVG, with its caption."""

    svg: Markup
    caption: str


class BoundsRow(NamedTuple):
    """One row of the table of bounds, as text."""

    name: str
    designs: str
    lower: str
    upper: str
    outer: str
    inner: str


def write_report(run_path: Path | str, *, task: OwnTask | Task | None = None) -> Path:
    """Write `report.html` into a run's folder, over one that is there, and give its path.

    `task` is that of a run of the user's own one; without it such a report shows no experiments.

    The file is put in place at once and nothing else is touched, so a run that another process owns may be reported on.
    """
    folder = RunFolder.open(Path(run_path))
    path = folder.path / REPORT
    replace_file(path, render(folder, task).encode("utf-8", "replace"))
    return path


def render(folder: RunFolder, task: OwnTask | Task | None = None) -> str:
    """The page. Equal folders give equal pages."""
    config, metrics = folder.config(), folder.read_metrics()
    record = _object(folder, RECORD)
    env = _object(folder, ENV)
    diagnosis = _object(folder, DIAGNOSIS)
    experiments, no_experiments = _experiments(folder, config, task)
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("scorebed"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(REPORT).render(
        run=folder.path.resolve().name,
        resume=f"scorebed resume {folder.path}",
        diagnose=f"scorebed diagnose {folder.path}",
        config=config,
        finished=record is not None,
        date=_date(folder) if record is not None else "",
        bounds=_bounds(record or {}, config),
        kind_of_bounds=in_words(record or {}),
        repeats_se=_nats((record or {}).get("lower_se_repeats")) if config.repeats > 1 else "",
        warnings=_warnings(record or {}),
        metrics_file=METRICS,
        losses=_losses(metrics),
        lowers=_lowers(metrics, folder, config),
        experiments=experiments,
        no_experiments=no_experiments,
        diagnosis=None if diagnosis is None else diagnosis_rows(diagnosis),
        verdict=str((diagnosis or {}).get("verdict", NOTHING)),
        diagnosis_png=_base64(folder.path / DIAGNOSIS_PICTURE),
        ledger=[(stage, _count(spent)) for stage, spent in _table(record, "nle_stages").items()],
        nle=_count((record or {}).get("nle")),
        nle_evaluation=_count((record or {}).get("nle_evaluation")),
        seconds=_seconds(record, metrics),
        settings=_settings(config),
        versions=list(_flat(env or {}).items()),
    )


# ---- numbers


def _bounds(record: Mapping[str, Any], config: RunConfig) -> list[BoundsRow]:
    if not record:
        return []
    best = f"the best of {config.policies:,}" if config.policies > 1 else "the only one trained"
    mean = f", mean of {config.repeats:,} repeats" if config.repeats > 1 else ""
    words = {
        "random": "designs drawn at random",
        "static": "designs fixed before the experiment, trained by PCE",
        "myopic": "at every step the design of largest one-step information gain",
    }.get(config.method, f"adaptive designs of the trained policy, {best}")
    rows = [_row(f"policy ({config.policy})", words + mean, record)]
    for name, values in _table(record, "references").items():
        rows.append(_row(str(name), str(values.get("designs", NOTHING)), values))
    return rows


def _row(name: str, designs: str, values: Mapping[str, Any]) -> BoundsRow:
    lower, upper = (f"{_nats(values.get(side))} ± {_nats(values.get(f'{side}_se'))}" for side in ("lower", "upper"))
    upper = upper if _nats(values.get("upper")) != NOTHING else NOTHING
    if "cost" in values:
        designs += f"; they cost {_form(values['cost'], '.4g')} on average, {_nats(values.get('cost_nats'))} nats"
    return BoundsRow(name, designs, lower, upper, _count(values.get("outer")), _count(values.get("inner")))


def _warnings(record: Mapping[str, Any]) -> list[str]:
    """Bounds that say little but log(M+1), in words."""
    rows = {"the policy": record} | {f"{name} designs": v for name, v in _table(record, "references").items()}
    return [
        f"{values['saturated']:.0%} of the trajectories of {name} are pressed against the ceiling log(M+1) = "
        f"{_nats(values.get('ceiling'))} nats: the lower bound is loose there. Raise evaluation.inner."
        for name, values in rows.items()
        if (_number(values.get("saturated"))) > SATURATED
    ]


def diagnosis_rows(diagnosis: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """The figures of `diagnosis.json`: name, value, and how sure it is. What is missing or not finite is a dash."""
    trained = _table(_table(diagnosis, "gradient"), "trained")
    rows = [
        (
            "gradient bias / gradient norm",
            _form(diagnosis.get("relative_bias"), ".2%"),
            f"at most {_form(diagnosis.get('relative_bias_upper'), '.2%')}",
        ),
        ("batch size at which bias outweighs noise", _form(trained.get("crossover"), ".3g"), ""),
    ]
    for where, error in _table(diagnosis, "score_error").items():
        for part, symbol in (("y", "y"), ("xi", "ξ")):
            name = f"relative score error, {symbol}-part, {where} designs"
            rows.append((name, _form(error.get(part), ".3g"), f"± {_form(error.get(f'{part}_se'), '.1g')}"))
    reach = _table(diagnosis, "coverage")
    worst = max((_number(share) for share in reach.get("outside_by_step", [])), default=math.nan)
    rows.append(
        (
            "designs outside of the sampler's reach",
            _form(reach.get("outside"), ".1%"),
            f"worst step {_form(worst, '.0%')}",
        )
    )
    for where, quantiles in _table(diagnosis, "conditioning").items():
        rows.append((f"median condition number of ∂y/∂ξ, {where} designs", _form(quantiles.get("median"), ".3g"), ""))
    behind = {"importance": ("inner", "draws of the prior"), "smc": ("particles", "particles")}
    key, what = behind.get(str(diagnosis.get("truth")), ("", ""))
    rows.append(
        ("ground truth", str(diagnosis.get("truth", NOTHING)), f"{_count(diagnosis.get(key))} {what}" if key else "")
    )
    rows.append(("trajectories", _count(diagnosis.get("outer")), ""))
    rows.append(("likelihood evaluations", _count(diagnosis.get("nle")), ""))
    return rows


def _seconds(record: Mapping[str, Any] | None, metrics: Sequence[Mapping[str, Json]]) -> list[tuple[str, str]]:
    """The record's account; before there is one, the last word of each stage, over all interruptions."""
    so_far: dict[str, Any] = {str(line["stage"]): line["seconds"] for line in metrics if "seconds" in line}
    spent = _table(record, "seconds") or so_far
    return [(stage, NOTHING if math.isnan(_number(s)) else f"{_number(s):,.1f}") for stage, s in spent.items()]


def _settings(config: RunConfig) -> list[tuple[str, str, str]]:
    """Key, value and meaning of every setting that is no section."""
    meanings = describe()
    return [(key, value, meanings[key]) for key, value in _flat(dataclasses.asdict(config)).items()]


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Dotted key → value as text."""
    found: dict[str, str] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = _plain(value)
    return found


def _plain(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int):
        text = NOTHING if value in ("", None, ()) else str(value)
        return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
    return f"{value:,}" if abs(value) >= 10_000 else str(value)


def _date(folder: RunFolder) -> str:
    written = (folder.path / RECORD).stat().st_mtime
    return datetime.datetime.fromtimestamp(written, datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")


def _object(folder: RunFolder, name: str) -> dict[str, Any] | None:
    """A JSON object of the run, if it is there."""
    if not (folder.path / name).exists():
        return None
    found = folder.read_json(name)
    if not isinstance(found, dict):
        raise RunFolderError(
            str(folder.path / name),
            got=type(found).__name__,
            expected="a JSON object",
            fix="delete it and run the command that makes it.",
        )
    return found


def _table(values: Mapping[str, Any] | None, key: str) -> dict[str, Any]:
    found = (values or {}).get(key)
    return found if isinstance(found, dict) else {}


def _number(value: object) -> float:
    """NaN for what is no number: records keep null for what was not finite."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan


def _nats(value: object) -> str:
    number = _number(value)
    return NOTHING if math.isnan(number) else f"{number:.3f}"


def _form(value: object, form: str) -> str:
    number = _number(value)
    return format(number, form) if math.isfinite(number) else NOTHING


def _count(value: object) -> str:
    number = _number(value)
    return NOTHING if math.isnan(number) else f"{number:,.0f}" if isinstance(value, float) else f"{value:,}"


# ---- figures


def _base64(path: Path) -> str:
    """A file for a data URI; nothing if it is not there."""
    return base64.b64encode(path.read_bytes()).decode("ascii") if path.exists() else ""


def _losses(metrics: Sequence[Mapping[str, Json]]) -> list[Picture]:
    """One picture per loss term of the scores, one line per score."""
    lines = [line for line in metrics if str(line["stage"]).startswith("score-")]
    terms = dict.fromkeys(name for line in lines for name in line if name not in ("stage", "step", "seconds"))
    pictures = []
    for number, term in enumerate(terms):
        figure, ax = _panel()
        curves = {str(line["stage"]): _curve(lines, str(line["stage"]), term) for line in lines}
        for (stage, (steps, values)), colour in zip(curves.items(), _colours(len(curves)), strict=True):
            ax.plot(steps, values, color=colour, linewidth=1.3, label=_literal(stage))
        _log_scale(ax, np.concatenate([values.ravel() for _, values in curves.values()]))
        ax.set(ylabel=_literal(f"loss, {_symbol(term)}-residuals" if term in ("xi", "y") else term))
        _finish(ax, legend=1 < len(curves) <= 8)
        caption = f"Loss of stage 1, term {_symbol(term)}, mean over blocks of steps."
        pictures.append(Picture(_svg(figure, f"loss-{number}"), caption))
    return pictures


def _lowers(metrics: Sequence[Mapping[str, Json]], folder: RunFolder, config: RunConfig) -> list[Picture]:
    """One picture per repeat: the bound of every policy while it trains, the chosen one and static designs set off."""
    pictures = []
    with_bound = [line for line in metrics if "lower" in line]
    for repeat in range(config.repeats):
        stages = [f"policy-{repeat}-{index}" for index in range(config.score.seeds)]
        curves = [_curve(with_bound, stage, "lower") for stage in stages]
        members = [(steps, row) for steps, values in curves for row in values.T]
        if not members:
            continue
        choice = _object(folder, f"choice-{repeat}.json") or {}
        best = 0 if len(members) == 1 else choice.get("best")
        figure, ax = _panel()
        steps, values = _curve(with_bound, "static", "lower")
        for row in values.T:
            ax.plot(steps, row, color=SOFT, linestyle="--", marker=".", linewidth=1.1, label="static designs")
        for number, (steps, row) in enumerate(members):
            style: dict[str, Any] = {"color": LINES[0], "alpha": 0.35, "linewidth": 1.0, "marker": "."}
            if number == best:
                style |= {"color": LINES[1], "alpha": 1.0, "linewidth": 1.8, "zorder": 3, "label": "policy kept"}
            elif number == (0 if best != 0 else 1):
                style |= {"label": "other policies" if best is not None else "policies"}
            ax.plot(steps, row, **style)
        ax.set(ylabel="EIG lower bound [nats]")
        _finish(ax, legend=True)
        which = f" of repeat {repeat + 1:,}" if config.repeats > 1 else ""
        caption = f"Lower bound of each policy{which} while training, by a small sample on the same draws every time."
        pictures.append(Picture(_svg(figure, f"lower-{repeat}"), caption))
    return pictures


def _experiments(folder: RunFolder, config: RunConfig, given: OwnTask | Task | None) -> tuple[Picture | None, str]:
    """A few experiments of the policy of the first repeat, or why there are none."""
    path = folder.path / "policy-0.safetensors"
    if not path.exists():
        return None, f"There is no trained policy yet: no {path.name}."
    try:
        task = task_of(config, given, on_warning=lambda _: None)
        policy = load_policy(path, config.policy, task)
    except ScorebedError as error:
        return None, f"The policy cannot be shown: {error}"
    runs = [simulate(task, policy, key=named(jr.key(seed), "report")) for seed in EXPERIMENT_SEEDS]
    seeds = ", ".join(str(seed) for seed in EXPERIMENT_SEEDS)
    first = ", that of the first repeat" if config.repeats > 1 else ""
    caption = f"{len(runs)} simulated experiments of the policy{first}, with parameters from the prior; seeds {seeds}."
    return Picture(_svg(draw_experiments(task, runs), "experiments"), caption), ""


def _curve(lines: Sequence[Mapping[str, Json]], stage: str, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Steps [n], and the values [n, policies] of one name in one stage; NaN where there is no number."""
    found = [line for line in lines if line["stage"] == stage and name in line]
    rows = [_numbers(line[name]) for line in found]
    values = np.full((len(rows), max(map(len, rows), default=0)), np.nan)
    for to, row in zip(values, rows, strict=True):
        to[: len(row)] = row
    return np.asarray([line["step"] for line in found], float), values


def _numbers(value: Json) -> list[float]:
    return [_number(item) for item in value] if isinstance(value, list) else [_number(value)]


def _panel() -> tuple[Figure, Axes]:
    figure = Figure(figsize=(4.6, 2.9), layout="constrained")
    return figure, figure.subplots()


def _finish(ax: Axes, *, legend: bool) -> None:
    ax.set_xlabel("step", fontsize=9, color=INK)
    ax.yaxis.label.set(fontsize=9, color=INK)
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(SOFT)
    ax.tick_params(which="both", labelsize=8, color=SOFT)
    ax.grid(axis="y", color=FAINT, linewidth=0.7)
    ax.set_axisbelow(True)
    ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    if legend:
        ax.legend(fontsize=8, framealpha=0.8, edgecolor="none", borderpad=0.3)


def _log_scale(ax: Axes, values: np.ndarray) -> None:
    """A log scale where one can be had, with plain numbers on it: a loss often moves within a single decade."""
    finite = values[np.isfinite(values)]
    if not finite.size or finite.min() <= 0:
        return
    ax.set_yscale("log")
    if finite.max() / finite.min() < 30:
        ax.yaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 5, 7)))
        ax.yaxis.set_major_formatter(ScalarFormatter())
        ax.yaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_minor_formatter(NullFormatter())


def _colours(number: int) -> list[str]:
    return [LINES[i % len(LINES)] for i in range(number)]


def _symbol(term: str) -> str:
    return "ξ" if term == "xi" else term


def _literal(text: str) -> str:
    """Text that matplotlib draws as it stands: a dollar would begin a formula, a first underscore hide a legend's entry."""
    return "".join(c if c.isprintable() else " " for c in text).replace("$", r"\$").lstrip("_")


def _svg(figure: Figure, name: str) -> Markup:
    """A figure as an element of the page. Its ids begin with `name`, because a page's ids are common to all its figures."""
    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": name, "svg.fonttype": "path"}):
        figure.savefig(buffer, format="svg", dpi=150, facecolor="white", metadata={"Date": None})
    text = buffer.getvalue()
    text = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", text[text.index("<svg") :], flags=re.DOTALL)
    text = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", text)
    return Markup(text)  # all text in it was escaped by matplotlib
