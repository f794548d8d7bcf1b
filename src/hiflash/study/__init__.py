"""The studies of HiFlash: runs, comparisons, sweeps, forecasts, associations, agents, theory, deployments.

May import everything but the command line.
"""
