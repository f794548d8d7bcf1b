"""What a client does with a model, and the cloud's half; `PARTS` of a module add names to `client.algorithm`.

May import the vocabulary and core.
"""
