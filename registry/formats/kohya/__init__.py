"""Single-file adapters of kohya's sd-scripts and of LyCORIS: flattened module names, an alpha tensor a module."""
