# Numbers made with PyTorch, and in plain Python: see tests/reference/README.md.
EXTRA_DIST += tests/reference/README.md tests/reference/make_reference.py tests/reference/recipes.zug \
  tests/reference/gpt2.json tests/reference/gpt2.tokens.u16 \
  tests/reference/gpt2.init.safetensors tests/reference/gpt2.final.safetensors \
  tests/reference/llama3.json tests/reference/llama3.tokens.u16 \
  tests/reference/llama3.init.safetensors tests/reference/llama3.final.safetensors \
  tests/reference/llama3-unknown.json tests/reference/llama3-unknown.records.i32 \
  tests/reference/llama3-unknown.final.safetensors \
  tests/reference/tape.py tests/reference/zoo.py tests/reference/make_numbers.py \
  tests/reference/against_transformers.py \
  tests/reference/bert.transformers.json tests/reference/t5.transformers.json tests/reference/vit.transformers.json \
  tests/reference/mistral.transformers.json tests/reference/gemma3.transformers.json \
  tests/reference/mixtral.transformers.json tests/reference/deepseek.transformers.json \
  tests/reference/mamba2.transformers.json \
  tests/reference/bert.json tests/reference/bert.records \
  tests/reference/bert.init.safetensors tests/reference/bert.final.safetensors \
  tests/reference/t5.json tests/reference/t5.records \
  tests/reference/t5.init.safetensors tests/reference/t5.final.safetensors \
  tests/reference/vit.json tests/reference/vit.records \
  tests/reference/vit.init.safetensors tests/reference/vit.final.safetensors \
  tests/reference/dit.json tests/reference/dit.records \
  tests/reference/dit.init.safetensors tests/reference/dit.final.safetensors \
  tests/reference/resnet.json tests/reference/resnet.records \
  tests/reference/resnet.init.safetensors tests/reference/resnet.final.safetensors \
  tests/reference/unet.json tests/reference/unet.records \
  tests/reference/unet.init.safetensors tests/reference/unet.final.safetensors \
  tests/reference/deltanet.json tests/reference/deltanet.records \
  tests/reference/deltanet.init.safetensors tests/reference/deltanet.final.safetensors \
  tests/reference/mamba2.json tests/reference/mamba2.records \
  tests/reference/mamba2.init.safetensors tests/reference/mamba2.final.safetensors \
  tests/reference/mistral.json tests/reference/mistral.records \
  tests/reference/mistral.init.safetensors tests/reference/mistral.final.safetensors \
  tests/reference/deepseek.json tests/reference/deepseek.records \
  tests/reference/deepseek.init.safetensors tests/reference/deepseek.final.safetensors \
  tests/reference/mixtral.json tests/reference/mixtral.records \
  tests/reference/mixtral.init.safetensors tests/reference/mixtral.final.safetensors \
  tests/reference/gemma3.json tests/reference/gemma3.records \
  tests/reference/gemma3.init.safetensors tests/reference/gemma3.final.safetensors \
  tests/reference/clip.json tests/reference/clip.records \
  tests/reference/clip.init.safetensors tests/reference/clip.final.safetensors
