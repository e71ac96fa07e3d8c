"""Differences between patient groups within hospitals, and differences that arise because groups go to different
hospitals.
"""
