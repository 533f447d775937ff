"""The decoder family of Llama, Qwen2 and Qwen3 in torch, and its weights."""
