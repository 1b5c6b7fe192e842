"""Settings and the readers of every client's config format."""
