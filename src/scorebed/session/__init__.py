"""The experiment at the bench: next design → measure → enter → next design, by one engine for Python, terminal and web.

`engine.Session` is what callers use. Beneath it, without JAX: `store` keeps the events in SQLite, `state` says what they amount
to, `submission` tells new outcomes from repeated ones. With it: `actor` is the policy, `posterior` what the data say so far,
`entry` reads what people type, `export` writes experiments out and reads them back, `opening` finds them.
"""
