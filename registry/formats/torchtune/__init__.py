"""Adapters under torchtune's own names: its adapter checkpoint as safetensors, beside the config it writes for PEFT."""
