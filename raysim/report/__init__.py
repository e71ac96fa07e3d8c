"""Tables, figures and pages of finished runs.

Nothing here is imported before the end of a run: matplotlib and jinja2 take longer to load than a round to compute.
"""
