"""``raysim design``: what a federation could demonstrate, before it has any data."""
