"""pytorch_lora_weights.safetensors as diffusers saves it: one file for all parts of a pipeline."""
