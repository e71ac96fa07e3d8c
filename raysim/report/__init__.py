"""Tables, figures and pages of finished runs.

Tables and pages are imported only at the end of a run: loading pandas and jinja2 takes longer than computing a round.
"""
