"""A function of arrays as an ONNX model: each equation of its jaxpr becomes one node or a few.

    jaxpr:  c = dot_general a b;  d = tanh c      →      ONNX:  c = Einsum(a, b);  d = Tanh(c)

`ONE_TO_ONE` and `RULES` cover what policies are made of: products, sums, elementwise functions,
reshaping and slicing. An operation without a rule, such as a loop or a factorisation, is refused by
name. Messages and checks are those of the package `onnx` (the extra `export`); shapes and types are
inferred by it and compared before a model is written. NLE: none."""

import string
from collections.abc import Callable, Iterable, Sequence
from typing import Any, SupportsInt, TypeAlias

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, Var
from jaxtyping import Array
from onnx import (
    ModelProto,
    NodeProto,
    TensorProto,
    ValueInfoProto,
    checker,
    helper,
    numpy_helper,
    shape_inference,
)

from scorebed import __version__
from scorebed.errors import ScorebedError
from scorebed.export.programs import Program

OPSET, IR_VERSION = 18, 8  # 8 is the first IR version with operator set 18
DTYPES = ("float32", "float64", "int32", "int64", "bool")


class NoOnnxError(ScorebedError):
    """A function without an ONNX form; the message is a reason, to follow "because"."""


def to_onnx(name: str, program: Program, weights: Sequence[Array]) -> bytes:
    """A program with its weights as one ONNX file; inputs and outputs keep the program's names.

    Raises `NoOnnxError` for a program with an operation or a type that has no rule here."""
    closed = jax.make_jaxpr(program.call)(*weights, *program.inputs.values())
    graph = _Graph()
    for var, array in zip(closed.jaxpr.invars, weights, strict=False):
        graph.names[var] = graph.constant(array)
    graph.names |= dict(zip(closed.jaxpr.invars[len(weights) :], program.inputs, strict=True))
    graph.translate(closed.jaxpr, closed.consts)
    for var, output in zip(closed.jaxpr.outvars, program.outputs, strict=True):
        # An output may be an input, a constant, or the same as another one: it needs its own node.
        graph.add("Identity", graph.name(var), outputs=[output])
    outputs = {n: v.aval for n, v in zip(program.outputs, closed.jaxpr.outvars, strict=True)}
    return graph.model(name, program.inputs, outputs).SerializeToString(deterministic=True)


class _Graph:
    """The nodes and constants so far, and the ONNX name of each variable of the jaxpr."""

    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self.constants: dict[str, np.ndarray] = {}
        self.names: dict[Var, str] = {}

    def constant(self, value: Any) -> str:
        array = np.asarray(value)
        _dtype(array)
        name = f"constant_{len(self.constants)}"
        self.constants[name] = array
        return name

    def integers(self, values: Iterable[SupportsInt]) -> str:
        return self.constant(np.asarray([int(value) for value in values], np.int64))

    def add(self, op: str, *inputs: str, outputs: Sequence[str] = (), **attributes: Any) -> str:
        """Append a node; returns the name of its first output."""
        outputs = outputs or [f"value_{len(self.nodes)}"]
        self.nodes.append(helper.make_node(op, inputs, outputs, **attributes))
        return outputs[0]

    def name(self, var: Var | Literal) -> str:
        if isinstance(var, Literal):
            return self.constant(np.asarray(var.val, _dtype(var.aval)))
        return self.names[var]

    def translate(self, jaxpr: Jaxpr, consts: Sequence[Any]) -> None:
        """Append every equation of a jaxpr; functions that it calls are inlined."""
        for var, value in zip(jaxpr.constvars, consts, strict=True):
            self.names[var] = self.constant(value)
        for eqn in jaxpr.eqns:
            kind, given = eqn.primitive.name, [self.name(var) for var in eqn.invars]
            if kind in CALLS:
                found = self.inline(next(eqn.params[k] for k in BODIES if k in eqn.params), given)
            elif kind in ONE_TO_ONE:
                found = [self.add(ONE_TO_ONE[kind], *given)]
            elif kind in RULES:
                made = RULES[kind](self, eqn, *given)
                found = [made] if isinstance(made, str) else made
            else:
                raise NoOnnxError(f"the operation '{kind}' has no ONNX form here")
            self.names |= dict(zip(eqn.outvars, found, strict=True))

    def inline(self, body: Jaxpr | ClosedJaxpr, given: Sequence[str]) -> list[str]:
        jaxpr, consts = (body.jaxpr, body.consts) if isinstance(body, ClosedJaxpr) else (body, ())
        self.names |= dict(zip(jaxpr.invars, given, strict=True))
        self.translate(jaxpr, consts)
        return [self.name(var) for var in jaxpr.outvars]

    def model(self, name: str, inputs: dict[str, Any], outputs: dict[str, Any]) -> ModelProto:
        """The whole model, checked: well formed, and with the types and shapes that ONNX infers."""
        used = {given for node in self.nodes for given in node.input}  # not every weight is
        constants = {n: array for n, array in self.constants.items() if n in used}
        graph = helper.make_graph(
            self.nodes,
            name,
            [_value_info(n, value) for n, value in inputs.items()],
            [_value_info(n, value) for n, value in outputs.items()],
            [numpy_helper.from_array(array, n) for n, array in constants.items()],
        )
        model = helper.make_model(
            graph,
            ir_version=IR_VERSION,
            opset_imports=[helper.make_opsetid("", OPSET)],
            producer_name="scorebed",
            producer_version=__version__,
        )
        try:
            checker.check_model(model, full_check=True)
        except (checker.ValidationError, shape_inference.InferenceError) as error:
            reason = str(error).strip().splitlines()[0][:200]
            raise NoOnnxError(f"its translation is not valid ONNX ({reason})") from error
        return model


def _dtype(value: Any) -> str:
    name = np.dtype(value.dtype).name
    if name not in DTYPES:
        raise NoOnnxError(f"it has values of type {name}")
    return name


def _element(value: Any) -> int:
    """ONNX's number for the type of an array."""
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(_dtype(value))))


def _value_info(name: str, value: Any) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, _element(value), value.shape)


Rule: TypeAlias = Callable[..., str | list[str]]
CALLS = ("jit", "closed_call", "checkpoint", "remat2", "custom_jvp_call", "custom_vjp_call")
BODIES = ("jaxpr", "call_jaxpr", "fun_jaxpr")  # the parameter that holds what is called
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


def _reshaped(graph: _Graph, x: str, shape: Iterable[SupportsInt]) -> str:
    return graph.add("Reshape", x, graph.integers(shape), allowzero=1)


def _reshape(graph: _Graph, eqn: Any, x: str) -> str:
    return _reshaped(graph, x, eqn.outvars[0].aval.shape)


def _broadcast(graph: _Graph, eqn: Any, x: str) -> str:
    shape, axes = eqn.params["shape"], eqn.params["broadcast_dimensions"]
    sizes = dict(zip(axes, eqn.invars[0].aval.shape, strict=True))
    aligned = _reshaped(graph, x, [sizes.get(i, 1) for i in range(len(shape))])
    return graph.add("Expand", aligned, graph.integers(shape))


def _slice(graph: _Graph, eqn: Any, x: str) -> str:
    starts, ends = eqn.params["start_indices"], eqn.params["limit_indices"]
    steps = eqn.params["strides"] or (1,) * len(starts)
    return graph.add("Slice", x, *map(graph.integers, (starts, ends, range(len(starts)), steps)))


def _dynamic_slice(graph: _Graph, eqn: Any, x: str, *starts: str) -> str:
    """Starts are clamped as in JAX, so that a slice always has its full size."""
    sizes, shape = eqn.params["slice_sizes"], eqn.invars[0].aval.shape
    each = [
        _reshaped(graph, graph.add("Cast", start, to=TensorProto.INT64), [1]) for start in starts
    ]
    last = graph.integers(a - b for a, b in zip(shape, sizes, strict=True))
    start = graph.add("Max", graph.add("Concat", *each, axis=0), graph.integers([0] * len(shape)))
    start = graph.add("Min", start, last)
    end = graph.add("Add", start, graph.integers(sizes))
    return graph.add("Slice", x, start, end, graph.integers(range(len(shape))))


def _stack(graph: _Graph, eqn: Any, *xs: str) -> str:
    axis, shape = eqn.params["axis"], list(eqn.outvars[0].aval.shape)
    shape[axis] = 1
    return graph.add("Concat", *(_reshaped(graph, x, shape) for x in xs), axis=axis)


def _split(graph: _Graph, eqn: Any, x: str) -> list[str]:
    outputs = [f"value_{len(graph.nodes)}_{i}" for i in range(len(eqn.outvars))]
    sizes = graph.integers(eqn.params["sizes"])
    graph.add("Split", x, sizes, outputs=outputs, axis=eqn.params["axis"])
    return outputs


def _dot(graph: _Graph, eqn: Any, x: str, y: str) -> str:
    """Letters for the axes: shared where they are summed or batched; the result has the batch
    first, then the free axes of x and of y.
    """
    summed, batch = eqn.params["dimension_numbers"]
    left, right = (list[str]([""] * len(var.aval.shape)) for var in eqn.invars)
    letters = iter(string.ascii_lowercase)
    for pairs in (batch, summed):
        for i, j in zip(*pairs, strict=True):
            left[i] = right[j] = next(letters)
    both = "".join(left[i] for i in batch[0])
    free = ""
    for axes in (left, right):
        for i, letter in enumerate(axes):
            if not letter:
                axes[i] = next(letters)
                free += axes[i]
    equation = f"{''.join(left)},{''.join(right)}->{both}{free}"
    return graph.add("Einsum", x, y, equation=equation)


def _reduce(op: str) -> Rule:
    return lambda graph, eqn, x: graph.add(op, x, graph.integers(eqn.params["axes"]), keepdims=0)


def _integer_pow(graph: _Graph, eqn: Any, x: str) -> str:
    power = np.asarray(eqn.params["y"], _dtype(eqn.invars[0].aval))
    return graph.add("Pow", x, graph.constant(power))


def _iota(graph: _Graph, eqn: Any) -> str:
    aval, axis = eqn.outvars[0].aval, eqn.params["dimension"]
    return graph.constant(np.indices(aval.shape)[axis].astype(_dtype(aval)))


def _select(graph: _Graph, eqn: Any, which: str, *cases: str) -> str:
    if len(cases) != 2 or _dtype(eqn.invars[0].aval) != "bool":
        raise NoOnnxError("it selects among more than two cases")
    return graph.add("Where", which, cases[1], cases[0])


RULES: dict[str, Rule] = {
    "reshape": _reshape,
    "squeeze": _reshape,
    "broadcast_in_dim": _broadcast,
    "slice": _slice,
    "dynamic_slice": _dynamic_slice,
    "split": _split,
    "stack": _stack,
    "dot_general": _dot,
    "reduce_sum": _reduce("ReduceSum"),
    "reduce_max": _reduce("ReduceMax"),
    "integer_pow": _integer_pow,
    "iota": _iota,
    "select_n": _select,
    "square": lambda graph, _, x: graph.add("Mul", x, x),
    "rsqrt": lambda graph, _, x: graph.add("Reciprocal", graph.add("Sqrt", x)),
    "transpose": lambda graph, eqn, x: graph.add("Transpose", x, perm=eqn.params["permutation"]),
    "concatenate": lambda graph, eqn, *xs: graph.add("Concat", *xs, axis=eqn.params["dimension"]),
    "convert_element_type": lambda graph, eqn, x: graph.add(
        "Cast", x, to=_element(eqn.outvars[0].aval)
    ),
}
