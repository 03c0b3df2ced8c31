"""A pool that is this process: what is shared out comes to the same whatever the order."""

from scorebed.cluster.pool import Pool, PoolResult


class Here(Pool):
    """The last piece first, every second one twice; those named in `poison` fail."""

    workers = 1

    def __init__(self, *, poison=""):
        self.poison, self.done = poison, []

    def run(self, function, pieces, *, on_done=lambda _: None):
        found = PoolResult({}, {})
        for name in reversed(pieces):
            if self.poison and self.poison in name:
                found.failed[name] = "poison"
                continue
            for _ in range(1 + (len(self.done) % 2)):
                found.results[name] = function(*pieces[name])
            self.done.append(name)
            on_done(name)
        return found
