"""Work shared among many processes and machines: pieces on a Dask cluster, arrays of SLURM.

Nothing here knows what the work is. A piece is the name of a function of ours with names, numbers
and paths; what it comes to is in a folder that all share, or a few numbers again.
"""
