"""The paper's figures and tables as items: a plan in TOML, its runs, and a verdict on every claim.

May import what study may import.
"""
