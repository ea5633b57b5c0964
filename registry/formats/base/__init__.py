"""Base model directories as transformers lays them out: config.json, tokenizer.json, one or many safetensors."""
