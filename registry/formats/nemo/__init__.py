"""Adapters of NeMo's Megatron models: model_config.yaml and the weights of an unpacked checkpoint as safetensors."""
