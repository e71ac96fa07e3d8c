"""Tables, pictures, and one page to pass on.

What people look at when a run or a comparison has ended.

Nothing here is imported before the end of a run: matplotlib and jinja2 cost more to load than a round costs to compute.
"""
