"""Reading of users' tables: the form of a file, its content, and the roles of its columns."""
