"""The mathematics: a published method in each file.

On plain arrays; ``base`` holds the interface.
"""
