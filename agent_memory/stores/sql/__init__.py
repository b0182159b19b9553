"""SQLite, PostgreSQL, MySQL and MariaDB: the same tables and statements."""
