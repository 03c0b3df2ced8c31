"""Configuration: what is right comes back, what is wrong is told in one line."""

import dataclasses
import types

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from scorebed.errors import InvalidValueError, NewerFormatError, ScorebedError, UnknownNameError
from scorebed.runs.config import (
    METHODS,
    RunConfig,
    describe,
    from_values,
    make_config,
    merge,
    parse_toml,
    to_toml,
)
from scorebed.runs.sections import (
    DensityConfig,
    EvaluationConfig,
    IOSMCConfig,
    PolicyConfig,
    ScoreConfig,
)

COUNTS = st.integers(1, 2**31 - 1)
RATES = st.floats(1e-3, 1e3)
SHARES = st.floats(0, 1, exclude_max=True)
NAMES = st.text("aZ9 -_:./é\"'\\#😀", min_size=1, max_size=8).filter(str.strip)


@st.composite
def configs(draw):
    """Any configuration, every field of it drawn."""
    score = ScoreConfig(
        kind=draw(st.sampled_from(["particles", "transformer", "transformer-direct"])),
        width=96,
        particles=draw(COUNTS),
        cloud=2 * draw(st.integers(1, 50)),
        blocks=draw(COUNTS),
        heads=draw(st.sampled_from([1, 2, 3, 8])),
        steps=draw(COUNTS),
        batch=draw(COUNTS),
        learning_rate=draw(RATES),
        floor_rate=draw(st.floats(0, 1e-3)),
        warmup_share=draw(SHARES),
        clip=draw(RATES),
        lambda_y=draw(RATES | st.just("auto")),
        weights=draw(st.sampled_from(["none", "own", "learned"])),
        bias_penalty=draw(st.floats(0, 10)),
        ema=draw(SHARES),
        seeds=draw(COUNTS),
    )
    policy = PolicyConfig(
        steps=draw(COUNTS),
        batch=draw(COUNTS),
        learning_rate=draw(RATES),
        schedule=draw(st.sampled_from(["cosine", "exponential", "constant"])),
        decay_rate=draw(st.floats(0, 1, exclude_min=True)),
        decay_every=draw(COUNTS),
        final_rate=draw(st.floats(0, 1e-3)),
        beta1=draw(SHARES),
        beta2=draw(SHARES),
        clip=draw(RATES),
        ema=draw(SHARES),
        monitor_every=draw(COUNTS),
        monitor_inner=draw(COUNTS),
        patience=draw(st.integers(0, 2**31 - 1)),
        halvings=draw(st.integers(0, 30)),
    )
    density = DensityConfig(
        width=96,
        layers=draw(COUNTS),
        heads=draw(st.sampled_from([1, 2, 3, 8])),
        bins=draw(st.integers(2, 1000)),
        steps=draw(COUNTS),
        batch=draw(COUNTS),
        learning_rate=draw(RATES),
        floor_rate=draw(st.floats(0, 1e-3)),
    )
    nested = IOSMCConfig(
        trajectories=draw(st.integers(2, 2**31 - 1)), particles=2, penalty=draw(RATES)
    )
    evaluation = EvaluationConfig(
        outer=draw(COUNTS),
        inner=draw(COUNTS),
        select_outer=draw(COUNTS),
        select_inner=draw(COUNTS),
        references=draw(st.booleans()),
    )
    return RunConfig(
        task=draw(NAMES),
        method=draw(st.sampled_from(METHODS)),
        preset=draw(NAMES),
        policy=draw(NAMES),
        policies=draw(COUNTS),
        repeats=draw(COUNTS),
        seed=draw(st.integers(0, 2**32 - 1)),
        score=score,
        policy_training=policy,
        evaluation=evaluation,
        density=density,
        iosmc=nested,
    )


@settings(deadline=None, max_examples=40)
@given(configs())
def test_any_configuration_comes_back_from_toml_and_from_its_values(config):
    assert from_values(parse_toml(to_toml(config).encode(), where="x")) == config
    assert from_values(dataclasses.asdict(config)) == config


@settings(deadline=None, max_examples=40)
@given(configs(), st.data())
def test_any_override_in_toml_is_the_value_it_says(config, data):
    values = dataclasses.asdict(config)
    key = data.draw(st.sampled_from(sorted(k for k in describe() if k.count("."))))
    section, name = key.split(".")
    line = next(
        x
        for x in to_toml(config).partition(f"[{section}]")[2].splitlines()
        if x.startswith(f"{name} = ")
    )
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
    assert (config.score.steps, config.score.batch, config.score.width) == (7, 9, 64)
    assert (config.score.kind, config.seed) == ("transformer", 4)
    assert make_config(values, (), file).seed == 3
    assert values["score"]["steps"] == 100  # what was given is left as it was


def test_presets_may_be_read_only_and_whole_numbers_written_as_reals(values):
    frozen = types.MappingProxyType(
        {k: types.MappingProxyType(v) if isinstance(v, dict) else v for k, v in values.items()}
    )
    config = make_config(frozen, ["score.steps=1e4", "score.clip=600"])
    assert config.score.steps == 10_000
    assert type(config.score.steps) is int
    assert type(config.score.clip) is float


def test_a_configuration_cannot_be_changed_and_every_key_is_described(config):
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.seed = 1
    assert all(describe().values())
    assert len(describe()) == 16 + 19 + 14 + 23 + 5 + 5 + 5


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
        ("task", "' '", "pendulum"),
        ("task", '"a\\nb"', "a.py:B"),
        ("score", "3", None),
    ],
)
def test_limits_are_named_with_their_key(values, key, bad, good):
    check(InvalidValueError, values, [f"{key}={bad}"], f"{key}, got ", "expected ")
    if good is not None:
        make_config(values, [f"{key}={good}"])


def test_heads_must_divide_the_width_of_a_transformer(values):
    overrides = ["score.heads=7"]
    make_config(values, overrides)
    check(
        InvalidValueError,
        values,
        [*overrides, "score.kind=transformer"],
        "score.heads, got 7",
        "a divisor of score.width, 64",
    )


@pytest.mark.parametrize(
    ("override", "meant"),
    [
        ("score.stpes=3", "score.steps"),
        ("scor.steps=3", "score"),
        ("polices=3", "policies"),
        ("score.monitor_every=3", "policy_training.monitor_every"),
        ("policy.steps=3", "policy_training.steps"),
        ("monitor_inner=3", "policy_training.monitor_inner"),
        ("score.steps.x=3", "score"),
    ],
)
def test_an_unknown_key_is_answered_with_the_nearest_right_one(values, override, meant):
    check(UnknownNameError, values, [override], "unknown key, got '", f"did you mean '{meant}'?")


@pytest.mark.parametrize(
    ("override", "meant"),
    [
        ("method=scores", "score"),
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


def test_a_misspelt_key_is_told_before_the_one_that_is_missing_for_it(values):
    misspelt = {
        **values,
        "evaluation": {"outter": 1, "inner": 1, "select_outer": 1, "select_inner": 1},
    }
    check(UnknownNameError, misspelt, [], "did you mean 'evaluation.outer'?")


def test_what_a_preset_must_decide_has_no_default(values):
    for key in ("score.width", "score.steps", "policy_training.batch", "evaluation.inner"):
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
    (tmp_path / "newer").write_text("format = 2\nwhatever = 1")
    check(
        NewerFormatError,
        values,
        [],
        "got format 2, expected at most format 1",
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
