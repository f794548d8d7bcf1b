"""What a federation survives: real processes on loopback that are killed, frozen, flooded and cut off.

`make chaos` runs every row and prints its figure; `python -m chaos --list` names the rows.
"""
