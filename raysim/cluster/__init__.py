"""Ray: nodes, placement, actors, shipping of rows."""
