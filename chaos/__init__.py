"""What happens when things go wrong, tried out in numbers: kills, damaged files, full disks, races,
strangers and nonsense.

`make chaos` carries out what is left of every part, a piece at a time, writes a record of each to
`docs/reliability/PART.json`, and `docs/reliability.md` from the records. A part is a function of a
piece's number, from which everything random in it follows. Servers listen on 127.0.0.1 alone, and
every loop and every wait has an end.
"""
