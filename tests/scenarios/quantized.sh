# Folders of quantized weights give what the same numbers give as they are: tests/data/quantized_llama has one model, whose
# numbers are those of bf16, in several ways. Bit for bit: the parameters are the same, however many ranks read their parts.
. "$ZUG_SRC/tests/scenarios/lib.sh"
need_mpi
data=$ZUG_SRC/tests/data/quantized_llama
for ids in '1, 2, 3, 4, 5' '250, 7, 99, 8'; do
  echo "{\"tokens\": [$ids], \"max_tokens\": 6, \"ignore_eos\": true, \"echo\": true, \"logprobs\": 0, \"temperature\": 0, \"seed\": 1}"
done >in.jsonl
echo 'recipe two { mesh tensor = 2  bind batch = 2, seq = 32  split grp, ffn, vocab over tensor }' >two.zug

write() { # OUT RANKS MODEL
  rm -f "$1"
  if [ "$2" = 1 ]; then ok timeout -k 5 60 zrun generate "$3" --precision f32 --prompts in.jsonl -o "$1"
  else ok timeout -k 5 60 $MPIRUN -np "$2" zrun generate "$3" --recipe two.zug:two --prompts in.jsonl -o "$1"; fi
}
for ranks in 1 2; do
  write plain.jsonl $ranks "$data/plain"
  grep -q int4 out.txt && { cat out.txt; fail "plain numbers are said to be quantized"; }
  for kind in awq ct; do
    write $kind.jsonl $ranks "$data/$kind"
    cmp plain.jsonl $kind.jsonl || fail "$kind on $ranks ranks is another model"
    grep -q '14 of 20 tensors are int4 of ' out.txt || { cat out.txt; fail "$kind is not said"; }
  done
  write gguf.jsonl $ranks "$ZUG_SRC/tests/data/gguf/model.gguf"
  cmp plain.jsonl gguf.jsonl || fail "model.gguf on $ranks ranks is another model"
done
# What is exported in 4 bits are these numbers again: they are codes times powers of two, and scales are searched.
echo 'recipe one { bind batch = 1, seq = 16  optimizer sgd(lr = 1e-3) }' >one.zug
ok zc "$ZUG_SRC/examples/llama3.zug" --config "$data/plain" -q -o llama.zsg
ok zrun train llama.zsg --recipe one.zug:one --steps 0 --init "$data/plain" --names hf --save own.safetensors --quiet
ok zckpt export own.safetensors --graph llama.zsg --names hf -o four --weights int4 --group 32 --dtype f16
grep -q '14 of them in 4 bits' out.txt || { cat out.txt; fail "packed matrices are not said"; }
write plain.jsonl 1 "$data/plain"
write four.jsonl 1 four
cmp plain.jsonl four.jsonl || fail "the export in 4 bits is another model"
mistake 'not whole groups of 64; help: --group 32|--group 32' zckpt export own.safetensors --graph llama.zsg --names hf -o other4 --weights int4 --group 64

# Zero points stay too, in int4z; int4 has none, and says so in place of rounding once more.
echo 'recipe kept { bind batch = 1, seq = 16  freeze layer  precision weights int4z group 32 for layer  optimizer sgd(lr = 1e-3) }' >>one.zug
ok zrun train llama.zsg --recipe one.zug:kept --steps 0 --init "$data/awq" --names hf --save kept.safetensors --quiet
cmp own.safetensors kept.safetensors || fail "int4z changes what AWQ has"
mistake 'int4 of AWQ.*, with zero points, and would be rounded once more to int4 group 32; help: store it as int4z|with zero points' \
  zrun generate "$data/awq" --weights int4 --group 32 --prompts in.jsonl -o none.jsonl

# Norms of Gemma have 1 added there. A file does not say how scores are scaled, which is as heads are large.
cp -r "$ZUG_SRC/tests/data/hf/small/gemma3" gemma3
sed -i 's/"query_pre_attn_scalar": 12/"query_pre_attn_scalar": 16/' gemma3/config.json
write plain.jsonl 1 gemma3
write gguf.jsonl 1 "$ZUG_SRC/tests/data/gguf/gemma3.gguf"
ids='s/.*"tokens":\[\([0-9,]*\)\].*/\1/' logs='s/"token":"[^"]*",//g; s/.*"logprobs"/"logprobs"/'
for what in "$ids" "$logs"; do
  sed "$what" plain.jsonl >want
  sed "$what" gguf.jsonl | cmp - want || fail "gemma3.gguf is another model"
done

# What cannot be read is refused before anything is written, by name.
cp -r "$data/awq" other
sed -i 's/"awq"/"quip"/' other/config.json
mistake 'quantized by `quip`' zrun generate other --prompts in.jsonl -o none.jsonl
cp "$ZUG_SRC/tests/data/gguf/model.gguf" short.gguf
truncate -s -1000 short.gguf
mistake 'lies outside of the file' zrun generate short.gguf --prompts in.jsonl -o none.jsonl
[ ! -e none.jsonl ] || [ ! -s none.jsonl ] || fail "something was written"
