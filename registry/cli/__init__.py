"""The command line: click commands over the Python client."""
