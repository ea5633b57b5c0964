"""What things are: frozen manifests, canonical bytes and digests. No I/O beyond bytes in memory, no torch."""
