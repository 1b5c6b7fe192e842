"""Saved functions: kept in folders of the Agent Skills layout, found by search, imported by later programs."""
