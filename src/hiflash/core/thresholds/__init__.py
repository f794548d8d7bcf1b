"""Policies that say how stale an upload may be; a module with `PARTS` adds names to `cloud.threshold`.

May import the vocabulary and core.
"""
