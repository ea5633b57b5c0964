"""REST over the same use cases: routers, problem+json, tokens."""
