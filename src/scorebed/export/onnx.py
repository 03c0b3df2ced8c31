"""A function of arrays as an ONNX graph, primitive by primitive of its jaxpr.

Only what policies are made of is known here: products, sums, elementwise functions, reshaping and
slicing. Anything else, a loop or a random draw among them, is refused by name; `jax.export` has
such functions all the same."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, SupportsInt, TypeAlias

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, Var
from jaxtyping import Array

from scorebed import __version__
from scorebed.errors import ScorebedError
from scorebed.export.programs import Program
from scorebed.export.protobuf import ELEMENTS, Attribute, Node, Value, model


class NoOnnxError(ScorebedError):
    """A function that has no ONNX form here."""


def to_onnx(name: str, program: Program, weights: Sequence[Array]) -> bytes:
    """A program with its weights as one ONNX file. Inputs and outputs have the names that the
    program gives them.
    """
    closed = jax.make_jaxpr(program.call)(*weights, *program.inputs.values())
    graph = _Graph()
    for var, array in zip(closed.jaxpr.invars, weights, strict=False):
        graph.names[var] = graph.constant(np.asarray(array))
    own = closed.jaxpr.invars[len(weights) :]
    graph.names |= dict(zip(own, program.inputs, strict=True))
    graph.run(closed.jaxpr, closed.consts)
    for var, output in zip(closed.jaxpr.outvars, program.outputs, strict=True):
        graph.add(
            "Identity", [graph.name(var)], [output]
        )  # an output may be an input or a constant
    inputs = [Value(n, s.shape, _dtype(s)) for n, s in program.inputs.items()]
    outputs = [
        Value(n, v.aval.shape, _dtype(v.aval))
        for n, v in zip(program.outputs, closed.jaxpr.outvars, strict=True)
    ]
    used = {
        given for node in graph.nodes for given in node.inputs
    }  # not every program needs every weight
    constants = {given: array for given, array in graph.constants.items() if given in used}
    return model(name, graph.nodes, constants, inputs, outputs, producer=("scorebed", __version__))


class _Graph:
    """Nodes and constants so far, and the name that each variable goes by."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.constants: dict[str, np.ndarray] = {}
        self.names: dict[Var, str] = {}

    def constant(self, array: Any) -> str:
        value = np.asarray(array)
        _dtype(value)
        name = f"constant_{len(self.constants)}"
        self.constants[name] = value
        return name

    def add(
        self, op: str, inputs: Sequence[str], outputs: Sequence[str] = (), **attributes: Attribute
    ) -> str:
        """A node; returns the name of its first output, made up if none is given."""
        made = tuple(outputs) or (f"value_{len(self.nodes)}",)
        self.nodes.append(Node(op, tuple(inputs), made, attributes))
        return made[0]

    def name(self, var: Var | Literal) -> str:
        return (
            self.constant(np.asarray(var.val, _dtype(var.aval)))
            if isinstance(var, Literal)
            else self.names[var]
        )

    def run(self, jaxpr: Jaxpr, consts: Sequence[Any]) -> None:
        """All equations of a jaxpr; what it calls becomes part of this graph."""
        for var, value in zip(jaxpr.constvars, consts, strict=True):
            self.names[var] = self.constant(value)
        for eqn in jaxpr.eqns:
            kind = eqn.primitive.name
            inside = next((eqn.params[key] for key in INSIDE if key in eqn.params), None)
            if kind in CALLS and inside is not None:
                body, values = (
                    (inside.jaxpr, inside.consts)
                    if isinstance(inside, ClosedJaxpr)
                    else (inside, ())
                )
                self.names |= {
                    mine: self.name(given)
                    for mine, given in zip(body.invars, eqn.invars, strict=True)
                }
                self.run(body, values)
                self.names |= {
                    mine: self.name(found)
                    for mine, found in zip(eqn.outvars, body.outvars, strict=True)
                }
            elif kind in ONE_TO_ONE:
                self.names[eqn.outvars[0]] = self.add(
                    ONE_TO_ONE[kind], [self.name(v) for v in eqn.invars]
                )
            elif kind in RULES:
                found = RULES[kind](self, eqn, *map(self.name, eqn.invars))
                self.names |= dict(
                    zip(eqn.outvars, [found] if isinstance(found, str) else found, strict=True)
                )
            else:
                raise NoOnnxError(
                    f"it has the operation '{kind}', for which there is no ONNX form here"
                )


Rule: TypeAlias = Callable[..., str | list[str]]
INSIDE = ("jaxpr", "call_jaxpr", "fun_jaxpr")
CALLS = (
    "jit",
    "pjit",
    "closed_call",
    "checkpoint",
    "remat",
    "remat2",
    "custom_jvp_call",
    "custom_vjp_call",
)
ONE_TO_ONE = {
    "add": "Add",
    "sub": "Sub",
    "mul": "Mul",
    "div": "Div",
    "max": "Max",
    "min": "Min",
    "neg": "Neg",
    "abs": "Abs",
    "exp": "Exp",
    "log": "Log",
    "tanh": "Tanh",
    "logistic": "Sigmoid",
    "erf": "Erf",
    "sqrt": "Sqrt",
    "sin": "Sin",
    "cos": "Cos",
    "lt": "Less",
    "le": "LessOrEqual",
    "gt": "Greater",
    "ge": "GreaterOrEqual",
    "eq": "Equal",
    "and": "And",
    "or": "Or",
    "not": "Not",
    "copy": "Identity",
    "add_any": "Add",
    "stop_gradient": "Identity",
}


def _dtype(value: Any) -> str:
    name = np.dtype(value.dtype).name
    if name not in ELEMENTS:
        raise NoOnnxError(f"it has values of type {name}")
    return name


def _whole(graph: _Graph, numbers: Iterable[SupportsInt]) -> str:
    return graph.constant(np.asarray([int(number) for number in numbers], np.int64))


def _shaped(graph: _Graph, x: str, shape: Iterable[SupportsInt]) -> str:
    return graph.add("Reshape", [x, _whole(graph, shape)], allowzero=1)


def _reshape(graph: _Graph, eqn: Any, x: str) -> str:
    return _shaped(graph, x, eqn.outvars[0].aval.shape)


def _broadcast(graph: _Graph, eqn: Any, x: str) -> str:
    shape, places = eqn.params["shape"], eqn.params["broadcast_dimensions"]
    sizes = dict(zip(places, eqn.invars[0].aval.shape, strict=True))
    aligned = _shaped(graph, x, [sizes.get(i, 1) for i in range(len(shape))])
    return graph.add("Expand", [aligned, _whole(graph, shape)])


def _slice(graph: _Graph, eqn: Any, x: str) -> str:
    starts, ends = eqn.params["start_indices"], eqn.params["limit_indices"]
    steps = eqn.params["strides"] or (1,) * len(starts)
    given = [_whole(graph, numbers) for numbers in (starts, ends, range(len(starts)), steps)]
    return graph.add("Slice", [x, *given])


def _dynamic_slice(graph: _Graph, eqn: Any, x: str, *starts: str) -> str:
    """Starts are moved inside, as JAX does: a slice is always whole."""
    sizes, shape = eqn.params["slice_sizes"], eqn.invars[0].aval.shape
    each = [
        _shaped(graph, graph.add("Cast", [start], to=ELEMENTS["int64"]), [1]) for start in starts
    ]
    begin = graph.add("Concat", each, axis=0)
    last = _whole(graph, [a - b for a, b in zip(shape, sizes, strict=True)])
    inside = graph.add("Min", [graph.add("Max", [begin, _whole(graph, [0] * len(shape))]), last])
    end = graph.add("Add", [inside, _whole(graph, sizes)])
    return graph.add("Slice", [x, inside, end, _whole(graph, range(len(shape)))])


def _stack(graph: _Graph, eqn: Any, *xs: str) -> str:
    axis, shape = eqn.params["axis"], list(eqn.outvars[0].aval.shape)
    shape[axis] = 1
    return graph.add("Concat", [_shaped(graph, x, shape) for x in xs], axis=axis)


def _split(graph: _Graph, eqn: Any, x: str) -> list[str]:
    outputs = [f"value_{len(graph.nodes)}_{i}" for i in range(len(eqn.outvars))]
    graph.add("Split", [x, _whole(graph, eqn.params["sizes"])], outputs, axis=eqn.params["axis"])
    return outputs


def _dot(graph: _Graph, eqn: Any, x: str, y: str) -> str:
    """One matrix product: the axes that are summed last on the left and first on the right."""
    (mine, theirs), batch = eqn.params["dimension_numbers"]
    if any(batch):
        raise NoOnnxError("it has a batch of matrix products")
    left, right = (v.aval.shape for v in eqn.invars)
    free = [
        [i for i in range(len(s)) if i not in used] for s, used in ((left, mine), (right, theirs))
    ]
    summed = math.prod(left[i] for i in mine)
    x = graph.add("Transpose", [x], perm=(*free[0], *mine))
    y = graph.add("Transpose", [y], perm=(*theirs, *free[1]))
    rows = _shaped(graph, x, [math.prod(left[i] for i in free[0]), summed])
    columns = _shaped(graph, y, [summed, math.prod(right[i] for i in free[1])])
    return _reshape(graph, eqn, graph.add("MatMul", [rows, columns]))


def _reduce(op: str) -> Rule:
    def rule(graph: _Graph, eqn: Any, x: str) -> str:
        return graph.add(op, [x, _whole(graph, eqn.params["axes"])], keepdims=0)

    return rule


def _integer_pow(graph: _Graph, eqn: Any, x: str) -> str:
    power = eqn.params["y"]
    return graph.add("Pow", [x, graph.constant(np.asarray(power, eqn.invars[0].aval.dtype))])


def _select(graph: _Graph, eqn: Any, which: str, *cases: str) -> str:
    if len(cases) != 2 or _dtype(eqn.invars[0].aval) != "bool":
        raise NoOnnxError("it chooses among more than two")
    return graph.add("Where", [which, cases[1], cases[0]])


RULES: dict[str, Rule] = {
    "reshape": _reshape,
    "squeeze": _reshape,
    "expand_dims": _reshape,
    "broadcast_in_dim": _broadcast,
    "slice": _slice,
    "dynamic_slice": _dynamic_slice,
    "split": _split,
    "stack": _stack,
    "dot_general": _dot,
    "reduce_sum": _reduce("ReduceSum"),
    "reduce_max": _reduce("ReduceMax"),
    "integer_pow": _integer_pow,
    "select_n": _select,
    "square": lambda graph, _, x: graph.add("Mul", [x, x]),
    "rsqrt": lambda graph, _, x: graph.add("Reciprocal", [graph.add("Sqrt", [x])]),
    "transpose": lambda graph, eqn, x: graph.add(
        "Transpose", [x], perm=tuple(eqn.params["permutation"])
    ),
    "concatenate": lambda graph, eqn, *xs: graph.add("Concat", xs, axis=eqn.params["dimension"]),
    "convert_element_type": lambda graph, eqn, x: graph.add(
        "Cast", [x], to=ELEMENTS[_dtype(eqn.outvars[0].aval)]
    ),
}
