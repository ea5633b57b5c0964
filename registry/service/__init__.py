"""Use cases, one a file: plain functions over a `Context`; no request objects, no terminal."""
