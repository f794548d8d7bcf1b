"""Where client tasks run: threads of this process, or a Ray cluster.

May import the vocabulary, core, methods and train.
"""
