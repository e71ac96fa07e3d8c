"""Parts of a page, each with a duty of its own."""
