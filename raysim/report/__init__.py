"""Tables, figures and pages of finished runs.

Nothing here is imported before the end of a run: loading matplotlib and jinja2 takes longer than computing a round.
"""
