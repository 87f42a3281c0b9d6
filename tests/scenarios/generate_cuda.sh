# zrun generate on a GPU that is a thread (tests/scenarios/cuda/gpu.h), all kernels emulated: the ids that transformers writes, and its
# log-probabilities, as generate_hf.sh has them of CPUs. At night of all families, and in bf16.
#
# Tolerance: as there; orders of adding f32 are others, and exponentials are a rounding or two off.
. "$ZUG_SRC/tests/scenarios/lib.sh"
need_emulated_gpu
. "$ZUG_SRC/tests/scenarios/generate_lib.sh"

# write MODEL OPTION...: in.jsonl to out.jsonl
write() {
  rm -f out.jsonl
  ok timeout -k 5 200 $emu generate "$@" --prompts in.jsonl -o out.jsonl --precision f32 --device cuda
  says '^planned == used: '
  grep -q '^steps of up to [0-9]* tokens are captured' out.txt && return
  says 'each step is queued anew: hosts must know how many rows experts have'
}
for folder in gpt2 small/mamba2 small/mixtral $(at_night && echo llama llama_tied qwen2 qwen3 gemma2 small/mistral small/gemma3 small/deepseek \
  small/phi3 small/qwen3moe small/gptoss small/olmo2 small/granite small/glm4 small/smollm3 small/starcoder2 small/neox \
  small/falcon small/falcon40 small/opt small/phi small/cohere); do
  family $folder
done

# ---- weights in 8 and 4 bits: as on CPUs, but that these round what a token's products read to 8 bits ----
echo '{"tokens": [5, 17, 40, 33, 9, 60, 2, 11, 45, 8, 31, 7, 22, 19], "max_tokens": 0, "echo": true, "logprobs": 0}' >in.jsonl
for format in int8 $(at_night && echo int4 nf4); do
  write "$hf/gpt2" --weights $format --group 32
  logs >device
  rm -f out.jsonl
  ok timeout -k 5 60 zrun generate "$hf/gpt2" --weights $format --group 32 --prompts in.jsonl -o out.jsonl --precision f32 --device cpu
  logs | paste device - | awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > most) most = d; n++ } END { print n " log-probabilities, at most " most " apart"; exit n < 13 || most > 0.02 }' ||
    fail "$format on a GPU: other log-probabilities than on a CPU"
done
