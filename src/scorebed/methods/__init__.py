"""The methods, by the names that the command line knows; each is an object in a file of its own."""

from collections.abc import Callable

from scorebed.methods.base import Job, Method, SomeMethod
from scorebed.methods.gradient import EstimatorMethod, GradientMethod
from scorebed.methods.iosmc import IOSMCMethod
from scorebed.methods.jointscore import JointScoreMethod
from scorebed.methods.jointvarpost import JointVarPostMethod
from scorebed.methods.mlmc import MLMCMethod
from scorebed.methods.myopic import MyopicMethod
from scorebed.methods.nmc import NMCMethod
from scorebed.methods.pce import PCEMethod
from scorebed.methods.random import RandomMethod
from scorebed.methods.score import ScoreMethod
from scorebed.methods.static import StaticMethod
from scorebed.methods.varmarg import VarMargMethod
from scorebed.methods.varpost import VarPostMethod
from scorebed.registry import Registry

__all__ = ["METHODS", "EstimatorMethod", "GradientMethod", "Job", "Method", "register_method"]

METHODS: Registry[type[Method]] = Registry(
    "method",
    {
        "score": ScoreMethod,
        "jointscore": JointScoreMethod,
        "pce": PCEMethod,
        "nmc": NMCMethod,
        "mlmc": MLMCMethod,
        "varmarg": VarMargMethod,
        "varpost": VarPostMethod,
        "jointvarpost": JointVarPostMethod,
        "iosmc": IOSMCMethod,
        "static": StaticMethod,
        "random": RandomMethod,
        "myopic": MyopicMethod,
    },
    made_by="a subclass of Method",
    accepts=lambda method: isinstance(method, type) and issubclass(method, Method),
)


def register_method(name: str) -> Callable[[type[SomeMethod]], type[SomeMethod]]:
    """Make a method of your own known as NAME, for `--method NAME` and in Python.

    Arguments:
        name: small letters, digits and hyphens; no built-in one.

    Returns:
        A decorator for a subclass of `Method`, such as `EstimatorMethod`, which it gives back.

    Raises:
        InvalidValueError: if the name is malformed or built in.

    Example:
        >>> @sb.register_method("mine")
        ... class Mine(sb.EstimatorMethod): ...  # doctest: +SKIP
    """
    return METHODS.register(name)
