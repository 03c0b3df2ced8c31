"""What people type and instruments send: read exactly, or refused in one sentence."""

import decimal
import fractions
import math

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import scorebed as sb
from scorebed.errors import InvalidValueError
from scorebed.session import validation
from scorebed.session.validation import (
    LARGEST,
    check_design,
    check_outcome,
    check_text,
    parse_entry,
    parse_limits,
)
from scorebed.tasks import make_task
from scorebed.tasks.declare import categories, counts, ranges

ONE, FOUR = make_task("linear-gaussian"), make_task("double-link")

GOOD = [
    "0",
    "-0.0",
    "1.5",
    " 1.5\t",
    "+2",
    ".5",
    "5.",
    "1e3",
    "1E-3",
    "-3.25e+2",
    "\N{MINUS SIGN}4",
    "3e38",
    "1e-40",
]
BAD = [
    "",
    "   ",
    "1e999",
    "-1e999",
    "1e39",
    "1,5",
    "1.000,5",
    "1 2",
    "nan",
    "NaN",
    "inf",
    "-Infinity",
    "1e",
    "e5",
    "--1",
    "1_000",
    "0x10",
    "١",
    "½",
    "1e-999",
    "1.5V",
    "one",
    "1.5.2",
    "None",
    "'",
    "\x1b[31m1",
    "9" * 2000,
    "@ 1",
    "1 @",
    "1 @ 3",
    "1 @ nan",
    "1 @ 1 1",
    "1 @ 1 @ 1",
    "[1]",
    "1;",
    "\udcff",
]


@pytest.mark.parametrize("text", GOOD)
def test_a_number_is_read_as_python_reads_it(text):
    assert parse_entry(ONE, text) == ((float(text.replace("\N{MINUS SIGN}", "-")),), None)


@pytest.mark.parametrize("text", BAD, ids=ascii)
def test_anything_else_is_refused_in_one_sentence(text):
    with pytest.raises(InvalidValueError, match=r", got .*, expected .*\. Fix: ") as refusal:
        parse_entry(ONE, text)
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 300


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("1,5", "comma"),
        ("1e999", "too large"),
        ("1e39", "too large"),
        ("1e-999", "too small"),
        ("", "nothing"),
        ("1 2", "2 numbers"),
        ("1 @ 3", "-2 to 2"),
        ("nan", "'nan'"),
    ],
)
def test_the_sentence_says_why(text, reason):
    with pytest.raises(InvalidValueError, match=reason):
        parse_entry(ONE, text)


def test_the_design_used_follows_an_at_sign():
    assert parse_entry(ONE, "0.5 @ -1.25") == ((0.5,), (-1.25,))
    assert parse_entry(ONE, "0.5@2") == ((0.5,), (2.0,))


def test_several_outcomes_need_their_number_of_numbers():
    assert parse_entry(FOUR, "1 2.5 -3 4e-1").y == (1.0, 2.5, -3.0, 0.4)
    with pytest.raises(InvalidValueError, match="got 3 numbers, expected 4 finite numbers"):
        parse_entry(FOUR, "1 2 3")
    with pytest.raises(InvalidValueError, match="comma"):
        parse_entry(FOUR, "1,2,3,4")


VALUES = [
    1.5,
    [1.5],
    (1.5,),
    np.float32(1.5),
    np.array(1.5),
    np.array([1.5]),
    jnp.asarray(1.5),
    jnp.asarray([1.5]),
    fractions.Fraction(3, 2),
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_numbers_come_in_any_container(value):
    assert check_outcome(ONE, value) == (1.5,)
    assert type(check_outcome(ONE, value)[0]) is float


WRONG = [
    math.nan,
    math.inf,
    -math.inf,
    np.float32(np.nan),
    [math.nan],
    jnp.asarray(jnp.inf),
    2 * LARGEST,
    10**400,
    [],
    [1.0, 2.0],
    [[1.0]],
    [[1.0], [1.0, 2.0]],
    np.ones((1, 1)),
    None,
    "1",
    b"1",
    ["1"],
    True,
    [False],
    np.bool_(True),
    1j,
    {"y": 1.0},
    {1.0},
    pytest.param(object(), id="an object"),
    decimal.Decimal("NaN"),
]


@pytest.mark.parametrize("value", WRONG, ids=lambda value: repr(value)[:30])
def test_values_that_are_no_outcome_are_refused(value):
    with pytest.raises(
        InvalidValueError, match=r"the outcome, got .* expected one finite number: response"
    ):
        check_outcome(ONE, value)


def test_a_design_must_lie_in_the_space_up_to_rounding():
    assert check_design(ONE, np.nextafter(np.float32(2), np.float32(3))) == pytest.approx((2.0,))
    with pytest.raises(InvalidValueError, match=r"covariate, got 2\.001, expected -2 to 2"):
        check_design(ONE, 2.001)
    assert check_design(make_task("location-finding"), [1e6, -1e6]) == (1e6, -1e6)


def test_texts_are_printable_and_short():
    assert check_text("a note", "naïve\nµ", longest=10, lines=True) == "naïve\nµ"
    for bad in ("", " \n", "x" * 11, "a\x00", "a\x1b[2J", "a\udcff"):
        with pytest.raises(InvalidValueError, match="a note, got"):
            check_text("a note", bad, longest=10, lines=True)
    with pytest.raises(InvalidValueError, match="the character"):
        check_text("a name", "two\nlines", longest=10)


# ---- once


@pytest.fixture
def checks(monkeypatch):
    """Every vector of numbers that is checked, by what it is."""
    seen = []
    check = validation.check_vector

    def counted(what, values, quantities):
        seen.append(what)
        return check(what, values, quantities)

    monkeypatch.setattr(validation, "check_vector", counted)
    return seen


def test_what_was_read_is_not_checked_again_on_its_way_to_the_disk(session, checks):
    entry = parse_entry(session.task, "0.5 @ 1.25")
    assert checks == ["the outcome", "the design used"]
    session.surprise(entry)
    session.foresee(entry)
    assert session.observe(entry).used == (1.25,)
    session.exchange(entry)
    session.correct(1, parse_entry(session.task, "0.75"))
    assert checks == ["the outcome", "the design used", "the outcome"]
    limits = parse_limits(session.task, "0:1")
    before = len(checks)
    assert session.limit(limits).limits == limits
    assert len(checks) == before


def test_numbers_from_python_are_checked_once(session, checks):
    session.propose()
    session.exchange(0.5, 1.25)
    session.observe(0.25)
    assert checks == ["the outcome", "the design used", "the outcome"]


# ---- outcomes and designs of few values


class Answered(sb.IID, sb.Discrete):
    """An answer and a count, of designs from lists."""

    horizon = 2
    prior = sb.parameters({"bias": dist.Normal(0.0, 1.0)})
    outcomes = categories("answer", ("no", "not sure", "yes")) + counts("clicks", at_most=9)
    designs = ranges({"dose [mg]": [0.1, 0.2, 0.4], "route": ["oral", "vein"]})

    def probabilities(self, theta, state, xi):
        del theta, state, xi
        return [jnp.ones(3) / 3, jnp.ones(10) / 10]


ANSWERED = Answered()


@pytest.mark.parametrize(
    ("typed", "y", "xi"),
    [
        ("yes 3", (2.0, 3.0), None),
        ("Not Sure 0", (1.0, 0.0), None),
        ("2 9", (2.0, 9.0), None),
        ("no 1 @ 0.2 vein", (0.0, 1.0), (0.2, 1.0)),
        ("no 1 @ 0.4 0", (0.0, 1.0), (0.4, 0.0)),
    ],
)
def test_answers_are_entered_by_name_or_number(typed, y, xi):
    assert parse_entry(ANSWERED, typed) == (y, xi)


@pytest.mark.parametrize(
    "typed", ["maybe 3", "3 3", "yes 10", "yes 1.5", "yes -1", "yes", "yes 1 @ 0.3 oral", "nosy 1"]
)
def test_a_value_that_is_not_there_is_refused(typed):
    with pytest.raises(InvalidValueError, match=r"Fix: ") as refused:
        parse_entry(ANSWERED, typed)
    assert "\n" not in str(refused.value)


def test_values_from_a_program_may_be_names_and_are_rounded_to_the_list():
    assert check_outcome(ANSWERED, ["yes", 3]) == (2.0, 3.0)
    assert check_design(ANSWERED, np.float32([0.1, 1.0])) == (0.1, 1.0)
    with pytest.raises(InvalidValueError, match=r"one of 0 \(no\), 1 \(not sure\), 2 \(yes\)"):
        check_outcome(ANSWERED, [5, 3])
