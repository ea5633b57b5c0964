"""Adapter directories as PEFT lays them out: adapter_config.json and adapter_model.safetensors."""
