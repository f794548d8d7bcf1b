"""Where client tasks run: threads of this process, or a Ray cluster.

May import the vocabulary, privacy, core, methods and train.
"""
