"""Attacks that infer patients' data from messages and models."""
