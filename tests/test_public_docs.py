"""Every public name is documented: sections that match the code, and an example that is run."""

import dataclasses
import doctest
import inspect
import re
import shutil
import typing
from pathlib import Path

import jax.numpy as jnp
import jax.random as jr
import pytest

import scorebed as sb
import scorebed.errors
import scorebed.training.fit

RUN = Path(__file__).parent / "fixtures" / "runs-v1" / "score"
SECTIONS = ("Attributes", "Arguments", "Methods", "Returns", "Raises", "Example")
FUNCTIONS = [name for name in sb.__all__ if inspect.isfunction(getattr(sb, name))]
CLASSES = [name for name in sb.__all__ if inspect.isclass(getattr(sb, name))]
TABLES = [name for name in sb.__all__ if name not in FUNCTIONS + CLASSES]
# Made by the user with arguments; by a function, with fields to read; or inherited from.
MADE = ["CartPole", "DoubleLink", "Gravimetry", "LinearGaussian", "LocationFinding", "Pendulum"]
RESULTS = ["Bounds", "Noise", "Run", "ScoreValue", "SweepResult", "Trajectory"]
BASES = [
    *("Bound", "DesignSampler", "Discrete", "EstimatorMethod", "EulerMaruyama", "Gaussian"),
    *(
        "History",
        "IID",
        "Implicit",
        "Markov",
        "Method",
        "Policy",
        "Score",
        "ScoreKind",
        "StochasticPolicy",
        "Task",
    ),
]
# Examples that others build upon, in the order in which they are run; the rest follows.
FIRST = [
    *("make_task", "make_policy", "train_score", "train_policies", "IID", "Discrete"),
    *("train_predictive", "Implicit", "Score", "sweep"),
]


def sections(text: str) -> dict[str, str]:
    """The sections of a docstring, each without its heading."""
    parts = re.split(rf"^({'|'.join(SECTIONS)}):\n", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def entries(section: str) -> list[str]:
    """The names that a section explains, as in `a, b: their meaning`."""
    heads = re.findall(r"^    (\w+(?:, \w+)*): \S", section, re.MULTILINE)
    return [name for head in heads for name in head.split(", ")]


def parameters(function: typing.Any) -> list[str]:
    return [name for name in inspect.signature(function).parameters if name != "self"]


def faults(function: typing.Any) -> list[str]:
    """What is wrong with the documentation of a function."""
    found, wrong = sections(inspect.getdoc(function) or ""), []
    if entries(found.get("Arguments", "")) != parameters(function):
        wrong.append(f"Arguments are not {parameters(function)}")
    if inspect.signature(function).return_annotation is not None and "Returns" not in found:
        wrong.append("no Returns")
    if ">>>" not in found.get("Example", ""):
        wrong.append("no Example")
    return wrong + _faults_of_raises(found)


def _faults_of_raises(found: dict[str, str]) -> list[str]:
    if "Raises" not in found:
        return []
    known = vars(scorebed.errors) | vars(scorebed.training.fit)
    names = entries(found["Raises"])
    unknown = [name for name in names if not issubclass(known.get(name, int), Exception)]
    return ([] if names else ["Raises is empty"]) + [f"no error {name}" for name in unknown]


def documented(name: str) -> dict[str, str]:
    return sections(inspect.getdoc(getattr(sb, name)) or "")


def is_attribute(kind: type, name: str) -> bool:
    """Whether instances of a class have it: a field, a property, or set by `__init__`."""
    declared = any(name in vars(base).get("__annotations__", {}) for base in kind.__mro__)
    return declared or hasattr(kind, name) or f"self.{name}" in inspect.getsource(kind)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_explains_what_it_takes_gives_and_raises(name):
    assert faults(getattr(sb, name)) == []


@pytest.mark.parametrize("name", MADE)
def test_a_class_that_users_make_explains_its_arguments(name):
    kind = getattr(sb, name)
    assert sorted(entries(documented(name)["Arguments"])) == sorted(parameters(kind.__init__))


@pytest.mark.parametrize("name", RESULTS)
def test_a_result_explains_its_fields(name):
    kind = getattr(sb, name)
    fields = getattr(kind, "_fields", None) or [f.name for f in dataclasses.fields(kind)]
    assert entries(documented(name)["Attributes"]) == list(fields)


@pytest.mark.parametrize("name", BASES)
def test_a_base_explains_what_has_to_be_written(name):
    kind, found = getattr(sb, name), documented(name)
    attributes, methods = entries(found.get("Attributes", "")), entries(found["Methods"])
    assert kind.__abstractmethods__ <= {*methods, *attributes}
    assert kind.__abstractvars__ <= set(attributes)
    assert [n for n in attributes if not is_attribute(kind, n)] == []
    assert [n for n in methods if not callable(getattr(kind, n, None))] == []


def test_a_session_explains_all_of_itself():
    found = documented("Session")
    public = {n: value for n, value in vars(sb.Session).items() if not n.startswith("_")}
    methods = {n for n, value in public.items() if not isinstance(value, property)}
    assert sorted(entries(found["Methods"])) == sorted(methods)
    attributes = entries(found["Attributes"])
    assert set(public) - methods <= set(attributes)
    assert [n for n in attributes if not is_attribute(sb.Session, n)] == []


@pytest.mark.parametrize("name", CLASSES + TABLES)
def test_a_class_or_table_has_a_sentence_and_an_example(name):
    text = inspect.getdoc(getattr(sb, name)) or ""
    assert re.match(r"[^\n]{20,}", text), "it starts with a sentence"
    assert ">>>" in sections(text)["Example"]
    assert _faults_of_raises(sections(text)) == []


def test_every_class_is_of_one_sort():
    errors = [name for name in CLASSES if issubclass(getattr(sb, name), sb.ScorebedError)]
    assert sorted(MADE + RESULTS + BASES + errors + ["Session"]) == sorted(CLASSES)


def test_no_documentation_is_inherited():
    texts = [inspect.getdoc(getattr(sb, name)) for name in sb.__all__]
    assert len(set(texts)) == len(texts)


def test_every_example_runs(tmp_path, monkeypatch):
    """In one namespace, so that `task`, `policy` and `score` mean the same in all of them. The runs
    that some of them read lie where they look.
    """
    shutil.copytree(RUN, tmp_path / "runs" / "linear-gaussian-score-1")
    monkeypatch.chdir(tmp_path)
    before = {table: dict(getattr(sb, table)) for table in TABLES}
    namespace = {"sb": sb, "jr": jr, "jnp": jnp}
    runner, parser = (
        doctest.DocTestRunner(optionflags=doctest.REPORT_NDIFF),
        doctest.DocTestParser(),
    )
    report: list[str] = []
    try:
        for name in [*FIRST, *(name for name in sb.__all__ if name not in FIRST)]:
            text = inspect.getdoc(getattr(sb, name)) or ""
            assert "+SKIP" not in text
            test = parser.get_doctest(text, namespace, name, None, None)
            test.globs = namespace  # not a copy
            runner.run(test, out=report.append, clear_globs=False)
    finally:  # what examples have registered is forgotten
        for table, built_in in before.items():
            getattr(sb, table).clear()
            getattr(sb, table).update(built_in)
    assert runner.failures == 0, "".join(report)
    assert runner.tries > len(sb.__all__)


def planted(task: sb.Task, policy: sb.Policy) -> int:
    """A function.

    Arguments:
        task: the experiment.
        polciy: the policy.

    Raises:
        InvalidValeuError: never.
    """
    del task, policy
    return 0


def test_the_check_sees_misspelt_names_and_missing_sections():
    assert faults(planted) == [
        "Arguments are not ['task', 'policy']",
        "no Returns",
        "no Example",
        "no error InvalidValeuError",
    ]
