"""Byzantine hospitals, canaries of an audit, and the robust rules against them."""
