"""The myopic designer: nothing is trained; each design is found anew in every experiment."""

from scorebed.baselines.myopic import Myopic
from scorebed.keys import named
from scorebed.methods.base import Job, Method
from scorebed.policies.base import Policy


class MyopicMethod(Method):
    """The design whose next outcome tells most about the parameters, step by step."""

    def untrained(self, job: Job) -> Policy:
        return Myopic(job.task, key=named(job.key, "myopic"))
