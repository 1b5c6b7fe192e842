"""Embedded MCP servers with the well-known scenarios, each measured twice: direct calls, and folded."""
