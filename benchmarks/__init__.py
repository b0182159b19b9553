"""Long runs that prove or measure; each is a command. Not part of the installed package."""
