"""Client training: models, and the trainers that run client tasks.

May import the vocabulary, core and data.
"""
