"""Content of pages besides metrics: sentences, figures and tables."""
