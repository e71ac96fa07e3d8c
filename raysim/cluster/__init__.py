"""Ray: nodes, placement, actors, and how rows reach them."""
