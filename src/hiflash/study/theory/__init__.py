"""The paper's convergence analysis: a calculator, estimators of its constants, and a check on real digits.

May import what study may import.
"""
