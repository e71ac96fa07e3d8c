"""Draw the figures of pages as inline SVG, from data frames."""
