"""The connection to Ray: nodes, placement, actors, and shipping of rows."""
