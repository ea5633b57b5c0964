"""GGUF files as llama.cpp writes them: metadata and packed weights of a base in one file."""
