"""The methods, by the names that the command line knows; each is an object in a file of its own."""

from scorebed.methods.base import Job, Method
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

__all__ = ["METHODS", "EstimatorMethod", "GradientMethod", "Job", "Method"]

METHODS: dict[str, type[Method]] = {
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
}
