"""What leaves a hospital: the ledger."""
