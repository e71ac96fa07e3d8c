"""The mathematics: one published way of federating per file, on plain arrays. ``base`` holds the interface."""
