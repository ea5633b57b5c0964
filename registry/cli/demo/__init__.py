"""`registry demo`: the main job on real adapters, every step the command a user would type."""
