"""Ray: nodes, placement, actors, rows on their way."""
