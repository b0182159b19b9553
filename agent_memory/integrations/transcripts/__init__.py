"""Convert the lines of coding agents' transcripts to messages."""
