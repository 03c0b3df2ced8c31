"""Configuration: what is right comes back, what is wrong is told in one line."""

import dataclasses
import types

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from scorebed.errors import InvalidValueError, NewerFormatError, ScorebedError, UnknownNameError
from scorebed.methods import METHODS
from scorebed.methods.fields import (
    Count,
    Decay,
    Flag,
    Name,
    NonNegative,
    Positive,
    Rate,
    Seed,
    WeightOrAuto,
)
from scorebed.methods.gradient import SCHEDULES
from scorebed.methods.reading import RESERVED, own_table, table_settings
from scorebed.methods.settings import settings_of
from scorebed.runs.config import (
    OPTIONAL,
    TABLES,
    RunSettings,
    from_values,
    make_config,
    merge,
    parse_toml,
    to_toml,
    to_values,
    used_settings,
)
from scorebed.scores import SCORES

COUNTS = st.integers(1, 2**31 - 1)
RATES = st.floats(1e-3, 1e3)
SHARES = st.floats(0, 1, exclude_max=True)
NAMES = st.text("aZ9 -_:./é\"'\\#😀", min_size=1, max_size=8).filter(str.strip)
# What a value may be, by its type; a setting whose type is of its own, or which has to go with
# another one, by its name.
BY_TYPE = (
    (Count, COUNTS),
    (Positive, RATES),
    (NonNegative, st.floats(0, 1e-3)),
    (Decay, SHARES),
    (Rate, st.floats(0, 1, exclude_min=True)),
    (Flag, st.booleans()),
    (WeightOrAuto, RATES | st.just("auto")),
    (Seed, st.integers(0, 2**32 - 1)),
    (Name, NAMES),
)
BY_NAME = {
    "budget": st.integers(0, 10**15),
    "score_run": st.just("") | NAMES,
    "width": st.just(96),
    "heads": st.sampled_from([1, 2, 3, 8]),
    "cloud": st.integers(1, 50).map(lambda half: 2 * half),
    "particles": st.integers(2, 2**31 - 1),
    "blocks": COUNTS,
    "iterations": COUNTS,
    "loss": st.sampled_from(["auto", "marginal", "sliced"]),
    "features": st.integers(1, 50).map(lambda half: 2 * half),
    "frequency_scale": RATES,
    "hidden": st.lists(st.integers(1, 512), min_size=1, max_size=3).map(tuple),
    "head_blocks": st.integers(0, 9),
    "potential_width": COUNTS,
    "normalised": st.booleans(),
    "by_noise": st.booleans(),
    "keep": st.sampled_from(["best", "last"]),
    "monitor": st.sampled_from(["contrastive", "importance"]),
    "weights": st.sampled_from(["none", "score", "learned"]),
    "patience": st.integers(0, 2**31 - 1),
    "halvings": st.integers(0, 30),
    "levels": st.integers(0, 30),
    "bins": st.integers(2, 1000),
    "trajectories": st.integers(2, 2**31 - 1),
    "moves": st.integers(0, 1000),
    "tight_outer": st.integers(0, 2**31 - 1),
}


def a_value(name, setting):
    """Any value of a setting."""
    found = [values for kind, values in BY_TYPE if setting.annotation == kind]
    return BY_NAME[name] if name in BY_NAME else found[0]


@st.composite
def some_values(draw):
    """The values of any configuration, every one of them drawn."""
    method = draw(st.sampled_from(sorted(METHODS)))
    kind = draw(st.sampled_from(["particles", "laplace", "transformer", "transformer-direct"]))
    schedule = draw(st.sampled_from(["cosine", "exponential", "staircase", "constant"]))
    chosen = {"score": {"kind": kind}, "policy_training": {"schedule": schedule}}
    tables = table_settings(method, chosen)
    tables["evaluation"] = settings_of(TABLES["evaluation"])
    if draw(st.booleans()):
        tables["posterior"] = settings_of(OPTIONAL["posterior"])
    fixed = {"method": method, "kind": kind, "schedule": schedule}
    return {
        section: {
            name: fixed[name] if name in fixed else draw(a_value(name, setting))
            for name, setting in keys.items()
        }
        for section, keys in (*tables.items(), ("", settings_of(RunSettings)))
    }


def made(drawn):
    """The configuration of such values."""
    return from_values(drawn[""] | {name: part for name, part in drawn.items() if name})


@settings(deadline=None, max_examples=60)
@given(some_values())
def test_any_configuration_comes_back_from_toml_and_from_its_values(drawn):
    config = made(drawn)
    values = to_values(config)
    for section, keys in drawn.items():
        part = values[section] if section else values
        assert {name: part.get(name, "") for name in keys} == keys
    assert from_values(parse_toml(to_toml(config).encode(), where="x")) == config
    assert from_values(values) == config


@settings(deadline=None, max_examples=40)
@given(some_values(), st.data())
def test_any_override_in_toml_is_the_value_it_says(drawn, data):
    config = made(drawn)
    values, text = to_values(config), to_toml(config)
    keys = sorted(use.key for use in used_settings(config) if "." in use.key)
    section, name = data.draw(st.sampled_from(keys)).split(".")
    lines = text.partition(f"[{section}]")[2].splitlines()
    line = next(x for x in lines if x.startswith(f"{name} = "))
    blank = {
        k: {n: v for n, v in s.items() if n != name} if k == section else s
        for k, s in values.items()
    }
    assert make_config(blank, [f"{section}.{line}"]) == config


def test_the_file_goes_over_the_preset_and_overrides_over_both(values, tmp_path):
    file = tmp_path / "run.toml"
    file.write_text("seed = 3\n[score]\nsteps = 7\nbatch = 8\n")
    config = make_config(
        values, ["score.batch=9", "score.kind=transformer", "score.lambda_y=auto", "seed = 4"], file
    )
    score = config.trained_by.score
    assert (score.training.steps, score.training.batch, score.kind.width) == (7, 9, 64)
    assert (score.name, config.seed) == ("transformer", 4)
    assert make_config(values, (), file).seed == 3
    assert values["score"]["steps"] == 100  # what was given is left as it was


def test_presets_may_be_read_only_and_whole_numbers_written_as_reals(values):
    frozen = types.MappingProxyType(
        {k: types.MappingProxyType(v) if isinstance(v, dict) else v for k, v in values.items()}
    )
    config = make_config(frozen, ["score.steps=1e4", "score.clip=600"])
    training = config.trained_by.score.training
    assert training.steps == 10_000
    assert type(training.steps) is int
    assert type(training.clip) is float


def test_a_configuration_cannot_be_changed_and_every_key_is_described(config):
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.seed = 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.trained_by.policy_training = None
    assert all(use.meaning for use in used_settings(config))
    sizes = {}
    for kind in SCORES:
        for method in METHODS:
            for table, keys in table_settings(method, {"score": {"kind": kind}}).items():
                assert all(each.meaning for each in keys.values()), (method, table)
                sizes[f"{table} {kind}" if table == "score" else table] = len(keys)
    assert sizes == {
        "policy_training": 19,
        "score particles": 16,
        "score laplace": 5,
        "score transformer": 23,
        "score transformer-direct": 20,
        "jointscore": 1,
        "pce": 1,
        "nmc": 1,
        "mlmc": 3,
        "varmarg": 11,
        "varpost": 12,
        "jointvarpost": 9,
        "iosmc": 6,
        "static": 1,
        "predictive": 10,
    }
    assert all(len(settings_of(part)) for part in (TABLES | OPTIONAL).values())


def test_no_table_of_a_method_is_called_like_another_key():
    assert {*settings_of(RunSettings), *TABLES, *OPTIONAL, "score", "policy_training"} == RESERVED
    assert own_table("pce") == own_table("my_method.py:PCE") == "pce"
    assert own_table("my_method.py:Method") == "method_method"


def test_an_override_that_smuggles_a_second_line_is_a_string():
    assert merge({}, ["a=1\nb=2", "c='x=y'", "d.e=[1, 2]", "f="]) == {
        "a": "1\nb=2",
        "c": "x=y",
        "d": {"e": [1, 2]},
        "f": "",
    }


POSITIVE = [
    "0",
    "-1",
    "nan",
    "inf",
    "1e400",
    "9" * 400,
    "true",
    "'5'",
    "1,5",
    "",
    "[1]",
    "1979-05-27",
]


@pytest.mark.parametrize("bad", [*POSITIVE, "1.5", str(2**31)])
@pytest.mark.parametrize(
    "key", ["score.steps", "policy_training.monitor_inner", "evaluation.outer", "policies"]
)
def test_counts_are_whole_numbers_from_one(values, key, bad):
    check(
        InvalidValueError,
        values,
        [f"{key}={bad}"],
        f"{key}, got ",
        "expected a whole number from 1",
    )


@pytest.mark.parametrize("bad", POSITIVE)
@pytest.mark.parametrize("key", ["score.learning_rate", "policy_training.clip", "score.lambda_y"])
def test_rates_are_finite_and_positive(values, key, bad):
    check(
        InvalidValueError,
        values,
        [f"{key}={bad}"],
        f"{key}, got ",
        "expected a finite positive number",
    )


@pytest.mark.parametrize(
    ("key", "bad", "good"),
    [
        ("seed", "-1", "0"),
        ("seed", str(2**32), str(2**32 - 1)),
        ("score.warmup_share", "1", "0"),
        ("score.ema", "1", "0.999"),
        ("score.bias_penalty", "-0.1", "0"),
        ("policy_training.decay_rate", "0", "1"),
        ("policy_training.decay_rate", "1.01", "0.5"),
        ("policy_training.beta2", "1.0", "0.0"),
        ("policy_training.final_rate", "-1e-9", "0"),
        ("policy_training.final_rate", "0.01", "0.001"),
        ("score.floor_rate", "0.01", "0.001"),
        ("score.cloud", "7", "6"),
        ("score.particles", "0", "1"),
        ("score.width", "-3", "3"),
        ("score.cloud", "2.5", "4"),
        ("task", "' '", "pendulum"),
        ("task", '"a\\nb"', "a.py:B"),
        ("score", "3", None),
    ],
)
def test_limits_are_named_with_their_key(values, key, bad, good):
    if "decay" in key:
        training = values["policy_training"] | {"schedule": "exponential"}
        values = values | {"policy_training": training}
    check(InvalidValueError, values, [f"{key}={bad}"], f"{key}, got ", "expected ")
    if good is not None:
        make_config(values, [f"{key}={good}"])


SCHEDULE_KEYS = {
    "cosine": {"final_rate"},
    "exponential": {"decay_rate", "decay_every"},
    "staircase": {"decay_rate", "decay_every"},
    "constant": set(),
}


@pytest.mark.parametrize("schedule", SCHEDULE_KEYS)
def test_a_run_lists_the_settings_of_its_schedule_and_no_others(values, schedule):
    config = make_config(values, [f"policy_training.schedule={schedule}"])
    listed = parse_toml(to_toml(config).encode(), where="x")["policy_training"].keys()
    every = set().union(*SCHEDULE_KEYS.values())
    assert listed & every == SCHEDULE_KEYS[schedule]
    assert {use.key.rpartition(".")[2] for use in used_settings(config)} & every == listed & every
    for key in every - SCHEDULE_KEYS[schedule]:
        overrides = [f"policy_training.schedule={schedule}", f"policy_training.{key}=1"]
        check(InvalidValueError, values, overrides, f"policy_training.{key}, got a setting of the")


def test_a_file_that_lists_the_settings_of_all_schedules_still_loads(config):
    lines = "decay_rate = 0.5\ndecay_every = 7\n"
    text = to_toml(config).replace("[policy_training]\n", f"[policy_training]\n{lines}")
    assert "decay_every = 7" in text
    assert from_values(parse_toml(text.encode(), where="x")) == config


def test_a_staircase_falls_in_jumps_and_meets_the_smooth_decay_at_them(values):
    rates = {}
    for schedule in ("staircase", "exponential"):
        training = values["policy_training"] | {"schedule": schedule, "decay_every": 10}
        made = make_config(values | {"policy_training": training}).trained_by.policy_training
        rates[schedule] = [float(SCHEDULES[schedule](made)(n)) for n in (0, 9, 10, 25)]
    jumps = [1e-3 * 0.98**n for n in (0, 0, 1, 2)]
    assert rates["staircase"] == pytest.approx(jumps)
    assert rates["exponential"] == pytest.approx([1e-3 * 0.98**n for n in (0, 0.9, 1, 2.5)])


def test_heads_must_divide_the_width_of_a_transformer(values):
    for kind in ("transformer", "transformer-direct"):
        make_config(values, ["score.heads=4", f"score.kind={kind}"])
        check(
            InvalidValueError,
            values,
            ["score.heads=7", f"score.kind={kind}"],
            "score.heads, got 7",
            "a divisor of score.width, 64",
        )
    check(UnknownNameError, values, ["score.heads=7"], "unknown key, got 'score.heads'")


@pytest.mark.parametrize("method", ["varmarg", "varpost", "jointvarpost"])
def test_what_does_not_go_together_is_told_with_its_section(values, method):
    sizes = {"width": 8, "steps": 9, "batch": 2}
    own = {"varmarg": {**sizes, "layers": 2}, "varpost": {**sizes, "blocks": 2, "heads": 2}}
    own["jointvarpost"] = {"width": 8, "blocks": 2, "heads": 2}
    rest = {key: value for key, value in values.items() if key != "score"}
    other = rest | {"method": method, method: own[method], "posterior": own["varpost"]}
    make_config(other)
    tables = [method, "posterior"]
    for table in tables:
        check(
            InvalidValueError,
            other,
            [f"{table}.floor_rate=0.01"],
            f"{table}.floor_rate, got 0.01, expected at most {table}.learning_rate, 0.001",
            f"--set {table}.floor_rate=VALUE",
        )
    for table in tables if method != "varmarg" else ["posterior"]:
        expected = f"{table}.heads, got 3, expected a divisor of {table}.width, 8"
        check(InvalidValueError, other, [f"{table}.heads=3"], expected)


@pytest.mark.parametrize(
    ("override", "meant"),
    [
        ("score.stpes=3", "score.steps"),
        ("scor.steps=3", "score.steps"),
        ("polices=3", "policies"),
        ("score.monitor_every=3", "policy_training.monitor_every"),
        ("policy.steps=3", "policy_training.steps"),
        ("monitor_inner=3", "policy_training.monitor_inner"),
        ("score.steps.x=3", "score.steps"),
        ("score.particels=3", "score.particles"),
        ("evaluation.select_iner=3", "evaluation.select_inner"),
    ],
)
def test_an_unknown_key_is_answered_with_the_nearest_right_one(values, override, meant):
    check(UnknownNameError, values, [override], "unknown key, got '", f"did you mean '{meant}'?")


@pytest.mark.parametrize(
    ("override", "meant"),
    [
        ("score.kind=particle", "particles"),
        ("policy_training.schedule=cosin", "cosine"),
        ("score.weights=learnt", "learned"),
    ],
)
def test_an_unknown_choice_is_answered_with_the_nearest_right_one(values, override, meant):
    check(
        UnknownNameError,
        values,
        [override],
        f"unknown value of {override.split('=')[0]}",
        f"did you mean '{meant}'?",
    )


def test_an_unknown_method_is_answered_with_the_nearest_right_one(values):
    check(UnknownNameError, values, ["method=scores"], "unknown method", "did you mean 'score'?")


@pytest.mark.parametrize(
    ("key", "users"),
    [
        ("pce.inner", "a setting of pce"),
        ("jointscore.score_rate", "a setting of jointscore"),
        ("varpost.steps", "a setting of varpost"),
        ("iosmc.particles", "a setting of iosmc"),
    ],
)
def test_a_setting_of_another_method_is_refused(values, key, users):
    expected = "expected one that a run of score uses"
    check(InvalidValueError, values, [f"{key}=3"], f"{key}, got {users}", expected)


def test_a_run_that_trains_nothing_has_no_settings_of_training(values):
    plain = {k: v for k, v in values.items() if k not in ("score", "policy_training")}
    floor = {**plain, "method": "random"}
    make_config(floor)
    for key in ("score.steps", "policy_training.steps"):
        check(InvalidValueError, floor, [f"{key}=3"], f"{key}, got ", "a run of random uses")


@pytest.mark.parametrize("key", ["posterior.steps", "density.steps"])
def test_a_model_with_a_density_has_no_posterior_to_bound_by(values, key):
    check(InvalidValueError, values, [f"{key}=3"], "posterior.steps, got a setting for models")


# ---- keys of format 1


def of_method(values, method, **own):
    """The values of another method."""
    rest = {key: value for key, value in values.items() if key != "score"}
    return rest | {"method": method} | ({method: own} if own else {})


DENSITY = {"width": 8, "steps": 9, "batch": 2}


def test_old_keys_are_accepted(values, tmp_path):
    """As overrides and in a file, whatever its format."""
    plain = make_config(values, ["policy_training.limit=0.5", "score.weights=own"]).trained_by
    assert plain.policy_training.trajectory_clip == 0.5
    assert plain.score.training.weights == "score"
    joint = make_config({**values, "method": "jointscore"}, ["score.joint_rate=0.25"]).trained_by
    assert joint.score_rate == 0.25
    for method in ("pce", "nmc", "static", "iosmc"):
        own = {"trajectories": 8, "particles": 4} if method == "iosmc" else {}
        found = make_config(of_method(values, method, **own), ["policy_training.inner=7"])
        assert found.trained_by.inner == 7
    old = [f"policy_training.{key}=3" for key in ("base", "levels", "tau")]
    levels = make_config(of_method(values, "mlmc"), old).trained_by
    assert (levels.base, levels.levels, levels.tau) == (3, 3, 3.0)
    flow = of_method(values, "varmarg", layers=2, **DENSITY)
    assert make_config(flow, ["density.layers=5"]).trained_by.network.layers == 5
    posterior = of_method(values, "varpost", blocks=2, **DENSITY)
    found = make_config(posterior, ["density.layers=5", "density.sigma=2"]).trained_by.network
    assert (found.blocks, found.frequency_scale) == (5, 2.0)
    bounded = {**values, "posterior": {"blocks": 2, **DENSITY}}
    assert make_config(bounded, ["density.steps=5"]).posterior.steps == 5
    for first in ("", "format = 1\n", "format = 2\n"):
        file = tmp_path / "old.toml"
        file.write_text(f"{first}[policy_training]\nlimit = 0.5\n[score]\nweights = 'own'\n")
        assert make_config(values, (), file).trained_by == plain


@pytest.mark.parametrize(
    "key", ["policy_training.inner", "policy_training.levels", "score.joint_rate"]
)
def test_old_keys_that_the_method_does_not_use_are_refused_as_they_were_written(values, key):
    check(UnknownNameError, values, [f"{key}=3"], f"unknown key, got '{key}'")


def test_the_method_of_an_override_or_a_file_decides_what_old_keys_mean(values, tmp_path):
    pce = of_method(values, "pce")
    file = tmp_path / "run.toml"
    file.write_text("method = 'nmc'\n[policy_training]\ninner = 7\n")
    assert make_config(pce, (), file).trained_by.inner == 7
    assert make_config(pce, ["policy_training.inner=5", "method=static"]).trained_by.inner == 5


def test_a_misspelt_key_is_told_before_the_one_that_is_missing_for_it(values):
    misspelt = {
        **values,
        "evaluation": {"outter": 1, "inner": 1, "select_outer": 1, "select_inner": 1},
    }
    check(UnknownNameError, misspelt, [], "did you mean 'evaluation.outer'?")


def test_what_a_preset_must_decide_has_no_default(values):
    for key in ("score.kind", "score.steps", "policy_training.batch", "evaluation.inner"):
        section, name = key.split(".")
        less = {**values, section: {k: v for k, v in values[section].items() if k != name}}
        check(InvalidValueError, less, [], f"{key}, got nothing", f"--set {key}=VALUE")


@pytest.mark.parametrize("override", ["score.steps", "", "=3", ".=3", "score.=3", "a..b=3"])
def test_an_override_is_key_and_value(values, override):
    check(InvalidValueError, values, [override], "an override, got ", "expected KEY=VALUE")


@pytest.mark.parametrize(
    "text",
    ["a = [", "a = 1\na = 2", "score = 1", "\x00", "[[score]]", "a" * 100, "x = " + "[" * 5000],
)
def test_a_bad_file_is_told_in_one_line(values, tmp_path, text):
    file = tmp_path / "run.toml"
    file.write_text(text)
    check(ScorebedError, values, [], "got ", file=file)


def test_a_file_that_is_missing_no_file_no_text_or_newer_is_told_in_one_line(values, tmp_path):
    (tmp_path / "latin").write_bytes(b"task = '\xe9'")
    for name, part in (
        ("gone", "No such file"),
        (".", "Is a directory"),
        ("latin", "expected a TOML file"),
    ):
        check(ScorebedError, values, [], part, file=tmp_path / name)
    (tmp_path / "newer").write_text("format = 3\nwhatever = 1")
    check(
        NewerFormatError,
        values,
        [],
        "got format 3, expected at most format 2",
        file=tmp_path / "newer",
    )


def check(error: type[ScorebedError], values, overrides, *parts: str, file=None) -> None:
    """Making the configuration fails with one line of moderate length that has these parts."""
    with pytest.raises(error) as caught:
        make_config(values, overrides, file)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 600
    assert "Fix: " in message
    for part in parts:
        assert part in message
