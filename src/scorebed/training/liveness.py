"""The most memory that a program takes at once, from the program alone.

A program is walked in its own order, and every value is held from where it is made to its last use.
What a compiler never writes to memory is not counted, by rules that all of XLA's backends share:

- a value made element by element (or a broadcast, a slice, a change of shape) is part of the loop
  that uses it, if one such loop does, or if it is cheap enough to be made again in each;
- an element-by-element result takes the place of an operand of its size that ends there, and so do
  an update in place and what a loop carries;
- a loop holds what it carries, what it stacks, and what one pass of its body needs; of the branches
  of a choice the largest counts; programs called inside are part of the one that calls.

Arguments, results and constants are held throughout. Compared with what the compiler of the CPU
reports for the same programs it is within a factor of 1.5 (`tests/training/test_liveness.py`).

When wrong: a backend that keeps transposed copies of the operands of products of matrices, or work
space of its own (cuDNN, Triton), takes more; one that computes values again to save memory takes
less. Buffers that two programs hold at the same time are in neither.
"""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, Var
from jax.interpreters.partial_eval import dce_jaxpr


class Footprint(NamedTuple):
    """Bytes that a program takes: what it is given, what it gives, and the most that it holds
    in between.
    """

    arguments: int
    results: int
    temporary: int

    @property
    def total(self) -> int:
        """All of it."""
        return self.arguments + self.results + self.temporary


# Part of the loop that uses them, and cheap to be made twice.
CHEAP = frozenset(
    [
        "abs",
        "add",
        "sub",
        "mul",
        "neg",
        "sign",
        "max",
        "min",
        "and",
        "or",
        "not",
        "xor",
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
        "select_n",
        "clamp",
        "convert_element_type",
        "bitcast_convert_type",
        "broadcast_in_dim",
        "iota",
        "stop_gradient",
        "copy",
        "real",
        "imag",
        "shift_left",
        "shift_right_logical",
        "shift_right_arithmetic",
        "is_finite",
        "floor",
        "ceil",
        "round",
        "square",
        "integer_pow",
        "slice",
        "dynamic_slice",
        "pad",
        "rev",
        "transpose",
        "reduce_precision",
        "squeeze",
        "reshape",
        "expand_dims",
        "nextafter",
    ]
)
# Part of a loop, but made once.
COSTLY = frozenset(
    [
        "exp",
        "exp2",
        "log",
        "log1p",
        "expm1",
        "tanh",
        "logistic",
        "sin",
        "cos",
        "tan",
        "asin",
        "acos",
        "atan",
        "atan2",
        "sinh",
        "cosh",
        "div",
        "rem",
        "rsqrt",
        "sqrt",
        "cbrt",
        "pow",
        "erf",
        "erfc",
        "erf_inv",
        "lgamma",
        "digamma",
        "population_count",
    ]
)
REDUCING = ("reduce_", "argmax", "argmin")
# The same buffer under another shape.
VIEWS = frozenset({"reshape", "squeeze", "expand_dims", "stop_gradient", "copy_p"})
IN_PLACE = frozenset(
    {"dynamic_update_slice", "scatter", "scatter-add", "scatter_add", "scatter-update"}
)


def of_jaxpr(closed: ClosedJaxpr) -> Footprint:
    """Of a program that was traced."""
    jaxpr, used = dce_jaxpr(closed.jaxpr, [True] * len(closed.jaxpr.outvars))
    del used  # what is not used is passed all the same
    constants = sum(_bytes(var.aval) for var in jaxpr.constvars)
    arguments = sum(_bytes(var.aval) for var in closed.jaxpr.invars)
    results = sum(_bytes(var.aval) for var in jaxpr.outvars)
    return Footprint(arguments + constants, results, max(0, _peak(jaxpr) - results))


class _Step(NamedTuple):
    """An equation of the flattened program, with its operands and results by number."""

    name: str
    equation: Any
    operands: tuple[int, ...]
    results: tuple[int, ...]


class _Flat:
    """A program without calls: every value has a number, and its size in bytes."""

    def __init__(self, jaxpr: Jaxpr):
        self.sizes: list[int] = []
        self.steps: list[_Step] = []
        self.where: dict[Var, int] = {}
        self.computed: dict[Any, tuple[int, ...]] = {}
        self.outside = {self._new(var) for var in (*jaxpr.invars, *jaxpr.constvars)}
        self._walk(jaxpr)
        self.ends = [self._at(var) for var in jaxpr.outvars]

    def _new(self, var: Any) -> int:
        self.where[var] = len(self.sizes)
        self.sizes.append(_bytes(var.aval))
        return self.where[var]

    def _at(self, var: Any) -> int:
        return -1 if isinstance(var, Literal) else self.where[var]

    def _word(self, var: Any) -> Any:
        """An operand by its number, or by its value."""
        return repr(var.val) if isinstance(var, Literal) else self.where[var]

    def _walk(self, jaxpr: Jaxpr) -> None:
        for equation in jaxpr.eqns:
            name = equation.primitive.name
            inside = _called(equation)
            if inside is not None:
                body, constants = inside
                for var, outer in zip(body.invars, equation.invars, strict=True):
                    self._bind(var, outer)
                for var in body.constvars:
                    self.outside.add(self._new(var))
                del constants
                self._walk(body)
                for var, inner in zip(equation.outvars, body.outvars, strict=True):
                    self._bind(var, inner)
                continue
            operands = tuple(at for var in equation.invars if (at := self._at(var)) >= 0)
            if name in VIEWS and operands:
                self.where[equation.outvars[0]] = operands[0]
                continue
            same = (name, tuple(map(self._word, equation.invars)), repr(equation.params))
            if _fusible(name) and same in self.computed:
                for var, before in zip(equation.outvars, self.computed[same], strict=True):
                    self.where[var] = before
                continue
            results = tuple(self._new(var) for var in equation.outvars)
            self.computed[same] = results
            self.steps.append(_Step(name, equation, operands, results))

    def _bind(self, var: Var, outer: Any) -> None:
        if isinstance(outer, Literal):
            self.outside.add(self._new(var))
        else:
            self.where[var] = self.where[outer]


def _called(equation: Any) -> tuple[Jaxpr, Any] | None:
    """The program that an equation merely calls; None for loops, choices and computations."""
    name = equation.primitive.name
    if name in ("scan", "while", "cond"):
        return None
    for key in ("jaxpr", "call_jaxpr", "fun_jaxpr"):
        inside = equation.params.get(key)
        if isinstance(inside, ClosedJaxpr):
            return inside.jaxpr, inside.consts
        if isinstance(inside, Jaxpr):
            return inside, ()
    return None


def _peak(jaxpr: Jaxpr) -> int:
    """The most that the values of a program take at once, without its arguments and constants."""
    flat = _Flat(jaxpr)
    written = _written(flat)
    # The values in memory that reading a value means reading: itself, or what it is made of.
    roots: dict[int, frozenset[int]] = {}
    last: dict[int, int] = {}
    reads: list[frozenset[int]] = []
    for index, step in enumerate(flat.steps):
        found = (
            frozenset().union(*(roots.get(each, frozenset({each})) for each in step.operands))
            if step.operands
            else frozenset()
        )
        reads.append(found)
        for each in step.results:
            if each not in written:
                roots[each] = found
        if any(each in written for each in step.results):
            last.update(dict.fromkeys(found, index))
    end = len(flat.steps)
    for each in flat.ends:
        if each >= 0:
            last.update(dict.fromkeys(roots.get(each, frozenset({each})), end))
    live, peak, held = 0, 0, set[int]()
    for index, step in enumerate(flat.steps):
        made = [each for each in step.results if each in written]
        if not made:
            continue
        ending = [each for each in reads[index] if each in held and last.get(each) == index]
        fresh = sum(flat.sizes[each] for each in made)
        shared = _shared(step, [flat.sizes[e] for e in made], [flat.sizes[e] for e in ending])
        peak = max(peak, live + fresh - shared + _inside(step))
        live += fresh - sum(flat.sizes[each] for each in ending)
        held.update(made)
        held.difference_update(ending)
        for each in made:  # a result that nobody reads ends at once
            if each not in last:
                live -= flat.sizes[each]
                held.discard(each)
    return max(peak, live)


def _written(flat: _Flat) -> set[int]:
    """The values that are written to memory."""
    users: dict[int, list[_Step]] = {}
    for step in flat.steps:
        for each in set(step.operands):
            users.setdefault(each, []).append(step)
    results = set(flat.ends)
    found = set()
    for step in flat.steps:
        for each in step.results:
            using = users.get(each, [])
            loops = all(_loops(user.name) for user in using)
            inlined = _fusible(step.name) and loops and using and each not in results
            if inlined and (len(using) == 1 or step.name in CHEAP):
                continue
            found.add(each)
    return found


def _fusible(name: str) -> bool:
    return name in CHEAP or name in COSTLY


def _loops(name: str) -> bool:
    return _fusible(name) or name.startswith(REDUCING)


def _shared(step: _Step, made: Sequence[int], ending: Sequence[int]) -> int:
    """Bytes of results that take the place of operands which end here."""
    in_place = _fusible(step.name) or step.name in IN_PLACE or step.name in ("scan", "while")
    if not in_place:
        return 0
    left, total = Counter(ending), 0
    for size in made:
        if left[size] > 0:
            left[size] -= 1
            total += size
    return total


def _inside(step: _Step) -> int:
    """What one pass of a loop, or the largest branch of a choice, needs besides."""
    params = step.equation.params
    if step.name == "scan":
        return _peak(params["jaxpr"].jaxpr)
    if step.name == "while":
        return _peak(params["body_jaxpr"].jaxpr)
    if step.name == "cond":
        return max(_peak(branch.jaxpr) for branch in params["branches"])
    return 0


def _bytes(aval: Any) -> int:
    return math.prod(aval.shape) * getattr(aval.dtype, "itemsize", 8)
