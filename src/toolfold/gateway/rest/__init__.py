"""The REST API at /api/v1: the same callers and rules as over MCP, for programs that speak plain HTTP."""
