"""Signing in to remote servers (OAuth): what is kept, the flow itself, and the person's part in it."""
