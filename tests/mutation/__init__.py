"""A seeded mutation run over the core: `scripts/mutate`. See CONTRIBUTING.md."""
