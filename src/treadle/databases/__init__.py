"""The databases that stores are in: SQLite files, and Redis."""
