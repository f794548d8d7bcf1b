"""What people ask of HiFlash: a run, comparisons, sweeps, associations, and what agents are worth.

May import everything but the command line.
"""
