"""The HTTP server of the service and of MCP, with limits against overload."""
