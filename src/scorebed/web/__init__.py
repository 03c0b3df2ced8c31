"""The experiment at the bench as a web page and a JSON interface, over `session`: it shows and
hands on, and computes nothing.

`hub` keeps the sessions of one run, `guard` decides who may ask, `requests` says what may be asked,
`api` answers instruments and the page's own script, `pages` renders what people see from
`knowledge`, `svg` and `pictures`, and `server` listens."""
