"""Attacks on privacy, as audits: what can be learned of patients from what leaves hospitals."""
