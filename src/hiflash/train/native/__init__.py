"""The compiled trainer: C generated for one model and one machine.

May import the vocabulary and train.
"""
