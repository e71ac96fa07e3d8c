"""The ledger of messages between hospitals and server."""
