# zrun generate against transformers: for each folder of tests/data/hf with a file `greedy` the ids that transformers writes, and the
# log-probabilities that it gives to them and to the prompt; tests/data/hf/README.md says how these were made.
#
# Tolerance: two orders of adding f32 differ by less than 1e-5 in log-probabilities down to -10; 5.0e-6 was the most.
. "$ZUG_SRC/tests/scenarios/lib.sh"
need_mpi
. "$ZUG_SRC/tests/scenarios/generate_lib.sh"

# write MODEL OPTION...: in.jsonl to out.jsonl
write() {
  rm -f out.jsonl
  ok timeout -k 5 60 zrun generate "$@" --prompts in.jsonl -o out.jsonl --precision f32 --quiet
}
for folder in gpt2 llama llama_tied qwen2 qwen3 gemma2 small/mistral small/mixtral small/gemma3 small/deepseek small/mamba2 \
  small/phi3 small/qwen3moe small/gptoss small/olmo2 small/granite small/glm4 small/smollm3 small/starcoder2 small/neox \
  small/falcon small/falcon40 small/opt small/phi small/cohere; do
  family $folder
done

# A prompt that an encoder reads: what follows alone, with a penalty (see make_greedy.py); sources of two lengths at once.
source() { # FOLDER
  while read -r prompt answer rest; do
    echo "{\"tokens\": [$prompt], \"max_tokens\": $(echo "$answer" | tr ',' '\n' | wc -l), \"ignore_eos\": true, \"repetition_penalty\": 2, \"logprobs\": 0}"
  done <"$hf/$1/greedy" >in.jsonl
  write "$hf/$1"
  sed 's/.*"tokens":\[\([0-9,]*\)\].*/\1/' out.jsonl >ids
  cut -d ' ' -f 2 "$hf/$1/greedy" | diff - ids || fail "$1 writes other ids than transformers"
  logs >has
  sed 's/.* //' "$hf/$1/greedy" | tr ',' '\n' | paste - has |
    awk -v family="$1" '{ d = $1 - $2; if (d < 0) d = -d; if (d > most) most = d; n++; if ($2 !~ /^-/) bad = 1 }
      END { printf "%s: %d log-probabilities, at most %.1e apart\n", family, n, most; exit bad || n < 62 || most > 1e-5 }' ||
    fail "$1: log-probabilities differ from those of transformers"
}
source small/t5
source small/t5v10

ok zc "$ZUG_SRC/examples/llama3.zug" --config "$hf/small/llamalora" --lora q_proj,v_proj --rank 4 --alpha 8 -q -o adapted.zsg
family small/llamalora adapted.zsg --init "$hf/small/llamalora" --names hf

# The loss is the mean over known targets, each the next token of a record: 16 tokens, then 16 targets.
od -An -v -w64 -td4 "$hf/llama/records.i32" | awk 'NR % 2 { gsub(/^ +/, ""); gsub(/ +/, ", "); printf "{\"tokens\": [%s], \"max_tokens\": 0, \"echo\": true, \"logprobs\": 0}\n", $0 }' >in.jsonl
write "$hf/llama"
logs | awk -v loss="$(cat "$hf/llama/loss")" '{ sum -= $1 } END { d = sum / NR - loss; exit !(NR == 30 && d < 1e-5 && d > -1e-5) }' ||
  { cat out.jsonl; fail "log-probabilities of a prompt are not its loss"; }
