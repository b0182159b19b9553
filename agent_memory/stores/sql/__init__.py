"""Stores on SQLite, PostgreSQL, MySQL and MariaDB, with common tables and statements."""
