"""The studies of HiFlash: runs, comparisons, sweeps, associations, calibrations, evaluations of agents.

May import everything but the command line.
"""
