"""Rules about routes: pools, families, lanes, resolved routes."""
