"""What servers of this package listen with: sockets and connections that hold off a crowd."""
