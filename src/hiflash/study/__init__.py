"""The studies of HiFlash: runs, comparisons, sweeps, associations, calibrations, agents, theory.

May import everything but the command line.
"""
