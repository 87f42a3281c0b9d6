# examples: models and recipes; tests/scenarios/examples.sh runs them all.
examples_files = \
  examples/bert.zug \
  examples/clip.zug \
  examples/clusters.zug \
  examples/cohere.zug \
  examples/deepseek.zug \
  examples/deltanet.zug \
  examples/dit.zug \
  examples/falcon.zug \
  examples/gemma2.zug \
  examples/gemma3.zug \
  examples/glm4.zug \
  examples/gpt2.zug \
  examples/gptoss.zug \
  examples/granite.zug \
  examples/llama3.zug \
  examples/llamadpo.zug \
  examples/lora.zug \
  examples/mamba2.zug \
  examples/minilm.zug \
  examples/mistral.zug \
  examples/mixtral.zug \
  examples/mlp.zug \
  examples/nanochat.zug \
  examples/neox.zug \
  examples/olmo2.zug \
  examples/opt.zug \
  examples/phi.zug \
  examples/phi3.zug \
  examples/published.zug \
  examples/qwen2.zug \
  examples/qwen3.zug \
  examples/qwen3moe.zug \
  examples/races.zug \
  examples/recipes.zug \
  examples/resnet.zug \
  examples/smollm3.zug \
  examples/speedrun.zug \
  examples/starcoder2.zug \
  examples/t5.zug \
  examples/unet.zug \
  examples/vit.zug
examplesdir = $(pkgdatadir)/examples
dist_examples_DATA = $(examples_files) examples/kubernetes.yaml examples/slurm.sh examples/srun.sh
