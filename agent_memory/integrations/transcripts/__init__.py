"""What coding agents write down of a session, as messages: pure readers of one line at a time."""
