"""Tables, figures and pages of a finished run or comparison.

Nothing here is imported before the end of a run: matplotlib and jinja2 take longer to load than a round to compute.
"""
