# examples: models and recipes; tests/scenarios/examples.sh runs them all.
examples_files = \
  examples/bert.zug \
  examples/clip.zug \
  examples/clusters.zug \
  examples/deltanet.zug \
  examples/dit.zug \
  examples/gemma2.zug \
  examples/gemma3.zug \
  examples/gpt2.zug \
  examples/llama3.zug \
  examples/lora.zug \
  examples/mamba2.zug \
  examples/mistral.zug \
  examples/mixtral.zug \
  examples/deepseek.zug \
  examples/mlp.zug \
  examples/qwen2.zug \
  examples/qwen3.zug \
  examples/recipes.zug \
  examples/resnet.zug \
  examples/t5.zug \
  examples/unet.zug \
  examples/vit.zug
examplesdir = $(pkgdatadir)/examples
dist_examples_DATA = $(examples_files) examples/slurm.sh examples/srun.sh
