"""The experiment at the bench: next design → measure → enter → next design, for Python, terminal
and web.

`session.Session` is what callers use. An entry passes `validation` (values, checked once),
`conflicts` (does it fit what is recorded?) and `journal` (in which order things reach the disk) on
its way to `store` (SQLite); `events` says what the stored events amount to, `opening` finds or
begins experiments, `io` writes them out and reads them back.

`policy_runner` is the policy at the bench, `posterior` what the data say so far, `measurements` the
arrays that both take, `familiarity` whether the policy has met such designs, `what_if` what may
come. `remaining` makes the remaining steps an experiment in themselves, `refine` trains on it, and
`messages` has the sentences."""
