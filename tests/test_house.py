"""The rules of the house, over the syntax tree of the source: a variant is an object in one file,
its name is a string in one table, and generic code asks for traits.
"""

import ast
import importlib
import inspect
import pathlib
import pkgutil
import re
from collections.abc import Iterator

import pytest

import scorebed
from scorebed.methods import METHODS
from scorebed.methods.base import Method
from scorebed.policies import POLICIES
from scorebed.policies.base import Policy
from scorebed.presets import PRESETS
from scorebed.scores import SCORES
from scorebed.scores.base import Score, ScoreKind
from scorebed.tasks import TASKS
from scorebed.tasks.base import Task

SOURCE = pathlib.Path(scorebed.__file__).parent
NAMES = frozenset([*METHODS, *SCORES, *PRESETS, *TASKS])
VARIANTS = frozenset(name.replace("-", "_") for name in [*NAMES, *POLICIES])
# Where strings become objects: methods and presets themselves, and one table per kind.
TABLES = ("methods", "presets")
REGISTRIES = frozenset(
    f"{kind}/__init__.py" for kind in ("tasks", "policies", "scores", "samplers", "bounds")
)
# `isinstance` on a concrete class: (file, class, reason), at most five.
EXCEPTIONS: tuple[tuple[str, str, str], ...] = ()

PROTOCOLS = (Task, Policy, Score, ScoreKind, Method)
FILES = sorted(path.relative_to(SOURCE) for path in SOURCE.rglob("*.py"))


def is_table(path: pathlib.Path) -> bool:
    return path.parts[0] in TABLES or str(path) in REGISTRIES


def strings(tree: ast.AST) -> Iterator[ast.Constant]:
    """String constants in code: no docstrings, no names of random streams, which `keys.named`
    turns into keys (another name would be another draw), and no names of commands, which are a
    table of their own.
    """
    apart = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "COMMANDS":
            apart |= {id(key) for key in node.value.keys}
        if isinstance(node, ast.Expr):
            apart.add(id(node.value))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "named":
            apart |= {id(argument) for argument in node.args}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in apart:
            yield node


def named_variants(source: str) -> list[tuple[int, str]]:
    return [(node.lineno, node.value) for node in strings(ast.parse(source)) if node.value in NAMES]


def variant_questions(source: str) -> list[tuple[int, str]]:
    """Attributes, functions and variables such as `is_static`."""
    found = []
    for node in ast.walk(ast.parse(source)):
        name = next((getattr(node, f) for f in ("attr", "id", "name") if hasattr(node, f)), None)
        match = re.fullmatch(r"_?is_(\w+)", name) if isinstance(name, str) else None
        if match and match[1] in VARIANTS:
            found.append((node.lineno, name))
    return found


def class_questions(source: str, classes: frozenset[str]) -> list[tuple[int, str]]:
    """`isinstance`, `issubclass` and `match` on these classes, but for those that the source
    defines.
    """
    tree, found = ast.parse(source), []
    own = {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    for node in ast.walk(tree):
        asked: ast.AST | None = None
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("isinstance", "issubclass"):
            asked = node.args[1]
        elif isinstance(node, ast.MatchClass):
            asked = node.cls
        if asked is not None:
            names = re.findall(r"\w+", ast.unparse(asked))
            found += [(asked.lineno, name) for name in names if name in classes - own]
    return found


def concrete_classes() -> frozenset[str]:
    """The names of all tasks, policies, scores, kinds and methods that are not abstract."""
    for module in pkgutil.walk_packages([str(SOURCE)], "scorebed."):
        if not re.match(r"scorebed\.(cli|web|export\.(client|policy))\b", module.name):
            importlib.import_module(module.name)
    found, waiting = set(), list(PROTOCOLS)
    while waiting:
        cls = waiting.pop()
        waiting += cls.__subclasses__()
        abstract = inspect.isabstract(cls) or getattr(cls, "__abstractvars__", ())
        ours = cls.__module__.startswith("scorebed.") and cls not in PROTOCOLS
        if ours and not abstract:
            found.add(cls.__name__)
    return frozenset(found)


@pytest.fixture(scope="module")
def concrete():
    return concrete_classes()


@pytest.mark.parametrize("path", FILES, ids=str)
def test_no_variant_is_named_outside_of_the_tables(path):
    source = (SOURCE / path).read_text()
    if not is_table(path):
        assert named_variants(source) == []
    assert variant_questions(source) == []


def test_no_class_of_a_variant_is_asked_for_outside_of_its_file(concrete):
    found = [
        (str(path), name, line)
        for path in FILES
        for line, name in class_questions((SOURCE / path).read_text(), concrete)
    ]
    allowed = {(file, name) for file, name, _ in EXCEPTIONS}
    assert [each for each in found if each[:2] not in allowed] == []
    assert allowed <= {each[:2] for each in found}, "an exception that is no longer needed"


def test_exceptions_are_few_and_have_reasons():
    assert len(EXCEPTIONS) <= 5
    assert all(reason for _, _, reason in EXCEPTIONS)


def test_the_names_and_classes_are_those_of_the_variants(concrete):
    assert {"score", "pce", "particles", "quick", "pendulum"} <= NAMES
    assert {"Pendulum", "LocationFinding", "DAD", "Static", "LaplaceScore"} <= concrete
    assert {"ScoreMethod", "Particles"} <= concrete
    assert not {"Task", "IID", "Gaussian", "Policy", "Score", "Method"} & concrete


@pytest.mark.parametrize(
    "code",
    [
        'if method == "pce": pass',
        'x = name in ("dad", "score")',
        'table = {"laplace": 1}',
        'train(method="static")',
        'match name:\n    case "quick": pass',
        'PCE = "pce"',
    ],
)
def test_a_name_is_found_wherever_it_stands(code):
    assert named_variants(code)


def test_what_is_no_name_of_a_variant_is_not_found():
    assert named_variants('"""score"""\nprint("a score of pce")\nnamed(key, "score")') == []


def test_questions_for_a_variant_are_found():
    assert variant_questions("if policy.is_static: pass") == [(1, "is_static")]
    assert variant_questions("def is_pce(): pass") == [(1, "is_pce")]
    assert variant_questions("is_array, is_abstract = 1, 2") == []
    classes = frozenset({"Pendulum", "DAD"})
    assert class_questions("isinstance(task, IID | Pendulum)", classes) == [(1, "Pendulum")]
    assert class_questions("match policy:\n    case DAD(): pass", classes) == [(2, "DAD")]
    assert class_questions("class DAD: ...\nisinstance(policy, DAD)", classes) == []
    assert class_questions("isinstance(task, Task)", classes) == []
