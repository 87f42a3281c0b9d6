# Runs each fuzz target for FUZZ_SECONDS (default 3) on mutations of what the tools themselves make.
# For more: make fuzz FUZZ_SECONDS=600 FUZZ_SEED=2, in a build configured with --enable-sanitize.
. "$ZUG_SRC/tests/lib.sh"
seconds=${FUZZ_SECONDS:-3}
seed=${FUZZ_SEED:-1}

mkdir lang format zsg data manifest weights hub metrics documents megatron
cp -r "$ZUG_SRC/tests/fuzz/text" text
cp "$ZUG_SRC"/examples/*.zug "$ZUG_SRC"/stdlib/std/*.zug lang/
cp lang/* format/
for text in good if trees weights; do cp "$ZUG_SRC/tests/lang/$text.zug" format/; done
small="-D layers=2 -D heads=2 -D width=8 -D words=16"
ok zc "$ZUG_SRC/examples/gpt2.zug" -o zsg/gpt2.zsg $small -D context=8
ok zc "$ZUG_SRC/examples/llama3.zug" -o zsg/llama3.zsg $small -D kv_heads=1 -D inner=16
ok zc "$ZUG_SRC/examples/mlp.zug" -o zsg/mlp.zsg
ok zdata pack "$ZUG_SRC/examples/mlp.zug" -o data/corpus.bin
printf 'short' >short.txt
ok zdata pack short.txt -o data/short.bin
printf '1,2,0\n3,4,1\n' >table.csv
ok zdata table table.csv --label 3 -o data/table.bin
printf '\0\001\377\377\002\0' >ids.u16
ok zdata pack ids.u16 --tokens u16 -o data/ids.bin
printf '{"text":"one"}\n{"n":[1.5e3,{"x":null}],"text":"t\\u0077\\ud83d\\ude00\\n"}\n\n{"text":3}\nx' >lines
ok zdata pack lines lines -o data/documents.bin
# The first byte is a number: mod 3 the packing (plain, gzip, zstd), 8 for JSON lines, 16 to skip bad ones.
{ printf '\030' && cat lines; } >documents/lines
{ printf '\010' && head -n 2 lines; } >documents/good
{ printf '\031' && gzip -c lines; } >documents/lines.gz
{ printf '\001' && gzip -c lines && gzip -c short.txt; } >documents/text.gz
command -v zstd >/dev/null && { printf '\032' && zstd -qc lines && zstd -qc lines; } >documents/lines.zst
for middle in 0 1; do # two sequences of u16, in one or two documents
  {
    printf 'MMIDIDX\0\0\001\0\0\0\0\0\0\0\010\002\0\0\0\0\0\0\0\003\0\0\0\0\0\0\0\003\0\0\0\001\0\0\0'
    printf '\0\0\0\0\0\0\0\0\006\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0'
    printf "\\00$middle\\0\\0\\0\\0\\0\\0\\0\002\\0\\0\\0\\0\\0\\0\\0"
  } >megatron/$middle
done
# safetensors HEADER DATA: eight bytes of length (here one that counts), then both.
safetensors() {
  printf "\\$(printf %03o ${#1})\0\0\0\0\0\0\0%s%s" "$1" "$2"
}
safetensors '{"a":{"dtype":"F32","shape":[3],"data_offsets":[0,12]},"layer.0.w":{"dtype":"F16","shape":[1],'\
'"data_offsets":[12,14]}}' 0123456789abcd >weights/two
safetensors '{"__metadata__":{"format":"pt"},"c":{"dtype":"BF16","shape":[],"data_offsets":[0,2]}}' 01 >weights/meta
{ # an index, and its two shards
  printf '%s\n#\n' '{"metadata":{"total_size":1.5e2},"weight_map":{"w":"a.safetensors","x":"b.safetensors"}}'
  safetensors '{"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}' 0123456789abcdefghijklmn
  printf '\n#\n'
  safetensors '{"x":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]}}' 0123456789ab
} >hub/two
{
  printf '%s\n#\n' '{"a":[1,{"b":-1.0E+2,"c":"\u0041\""}],"weight_map":{"w":"a.safetensors"}}'
  safetensors '{"w":{"dtype":"F16","shape":[2,3],"data_offsets":[0,12]}}' 0123456789ab
} >hub/one

cat >manifest/two <<'END'
{"format":"zug checkpoint","version":1,"checksum":"0000000000000000",
"step":5,"samples":40,"serial":2,"program":"0.1","model":"M","command":"zrun","recipe":"recipe r { }\n",
"facts":{"data":{"tokens":"11358"}},"file_limit":100,"files":[],"states":["exp_avg"],
"parameters":[{"path":"a","shape":[3,4],"checksums":["77ce7be96a85f744","724b25c4381713d8"]},
  {"path":"layer.0.w","shape":[],"checksums":["0000000000000000","724b25c4381713d8"]}]}
END
printf '{"step":%d,"steps":3,"loss":2.5e0,"grad_norm":null,"lr":1e-3,"tokens":512,"step_ms":36.5}\n' 1 2 3 >metrics/run
printf '{"step":3,"steps":3,"eval_batches":2,"eval_loss":2.25,"eval_ms":40}\n' >>metrics/run
printf '{"step":%d,"loss":%s}\n' 1 1e-240 2 1e240 3 -1e299 4 1e308 >metrics/odd

for target in lang format zsg data manifest weights hub metrics text documents megatron; do
  "$ZUG_BUILD/tests/fuzz/fuzz-$target" $target --seconds "$seconds" --seed "$seed" ||
    fail "fuzz-$target; the input that did it is in $(pwd)"
done
