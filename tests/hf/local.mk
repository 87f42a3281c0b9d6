# Folders from transformers, with the numbers that it computed: see tests/hf/README.md.
EXTRA_DIST += tests/hf/mixtral tests/hf/mamba2 tests/hf/deepseek tests/hf/t5 tests/hf/gemma3 tests/hf/mistral tests/hf/README.md tests/hf/make_folders.py tests/hf/make_keys.py tests/hf/bert tests/hf/gemma2 tests/hf/gpt2 tests/hf/llama \
  tests/hf/llama_tied tests/hf/qwen2 tests/hf/qwen3
