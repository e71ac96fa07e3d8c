"""Which measure tells how data was divided.

It tells also how many clusters are chosen. Nothing is trained here.
"""
