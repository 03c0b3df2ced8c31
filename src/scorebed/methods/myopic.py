"""The myopic designer: nothing is trained; each design is searched for during the experiment."""

from typing import ClassVar

from scorebed.baselines.myopic import Myopic
from scorebed.keys import named
from scorebed.methods.base import Job, Method
from scorebed.policies.base import Policy


class MyopicMethod(Method):
    """The design whose next outcome tells most about the parameters, step by step."""

    serves_discrete: ClassVar[bool] = True
    serves_names: ClassVar[bool] = True
    has_own_policy: ClassVar[bool] = True
    designs_in_words: ClassVar[str] = (
        "at every step the design of largest one-step information gain"
    )

    def untrained(self, job: Job) -> Policy:
        return Myopic(job.task, key=named(job.key, "myopic"))
