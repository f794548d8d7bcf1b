"""The studies of HiFlash: runs, comparisons, sweeps, forecasts, associations, agents and their evaluation.

May import everything but the command line.
"""
