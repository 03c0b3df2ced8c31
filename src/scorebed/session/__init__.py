"""The experiment at the bench: next design → measure → enter → next design, by one engine for
Python, terminal and web.

`engine.Session` is what callers use. Beneath it, without JAX: `store` keeps the events in SQLite,
`state` says what they amount to, `submission` tells new outcomes from repeated ones. With it:
`ledger` is what may be entered, `actor` the policy, `posterior` what the data say so far, `trust`
whether the policy has been here before, `foresight` what may come next. Changed circumstances:
`circumstances` says what they mean, `room` where designs may lie under limits and the task's
constraint, `rest` and `remainder` make the remaining steps an experiment of its own, `refine`
trains on it. `entry` reads what people type, `export` writes experiments out and reads them back,
`opening` finds them."""
