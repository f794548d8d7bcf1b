"""A report as a page: blocks that know no format, and their writers for HTML and Markdown.

May import the vocabulary, core, store, sim and control, and the rest of report.
"""
