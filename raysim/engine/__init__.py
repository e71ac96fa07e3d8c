"""A round: what is sent, trained, merged, evaluated."""
