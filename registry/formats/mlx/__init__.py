"""Adapter directories as mlx-lm trains them: adapter_config.json and adapters.safetensors."""
