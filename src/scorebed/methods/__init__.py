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
from scorebed.methods.predictive import PredictiveMethod
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
        "predictive": PredictiveMethod,
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
    about="""The methods, by the names that `--method` takes: each a class whose fields are its
    settings. `register_method` adds one.

    Example:
        >>> list(sb.METHODS)[:3]
        ['score', 'jointscore', 'predictive']
    """,
)


def register_method(name: str) -> Callable[[type[SomeMethod]], type[SomeMethod]]:
    """Add a method of your own, for `--method NAME` and in Python.

    Arguments:
        name: lower-case letters, digits and hyphens; not a built-in name.

    Returns:
        A decorator for a subclass of `Method`, such as `EstimatorMethod`. It returns the class.

    Raises:
        InvalidValueError: if the name is malformed or built in, or the class is not a `Method`.

    Example:
        >>> @sb.register_method("my-method")
        ... class MyMethod(sb.METHODS["pce"]):
        ...     inner: int = 31
        >>> "my-method" in sb.METHODS
        True
    """
    return METHODS.register(name)
