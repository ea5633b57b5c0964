"""The service around the rooms: formats, storage, database, use cases, REST and command line."""
