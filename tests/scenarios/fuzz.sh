# Runs each fuzz target for FUZZ_SECONDS (default: 20 s for all of them) on mutations of what the tools make.
# For more: make fuzz FUZZ_SECONDS=600 FUZZ_SEED=2, in a build configured with --enable-sanitize.
. "$ZUG_SRC/tests/scenarios/lib.sh"
targets="lang format zsg data manifest weights hub quantized gguf metrics text documents megatron table config adapter trace hosts schema serve template"
seconds=${FUZZ_SECONDS:-1.3}
seed=${FUZZ_SEED:-1}

for target in $targets; do mkdir $target; done
rmdir text template
cp -r "$ZUG_SRC/tests/data/fuzz/text" "$ZUG_SRC/tests/data/fuzz/template" .
cp "$ZUG_SRC"/examples/*.zug "$ZUG_SRC"/stdlib/std/*.zug lang/
cp lang/* format/
for text in good if trees weights; do cp "$ZUG_SRC/tests/data/lang/$text.zug" format/; done
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
# The first byte is a number: mod 3 the packing (plain, gzip, zstd), 8 for JSON lines, 16 to skip bad ones, 32 for what is
# packed by the target.
{ printf '\030' && cat lines; } >documents/lines
{ printf '\010' && head -n 2 lines; } >documents/good
{ printf '\031' && gzip -c lines; } >documents/lines.gz
{ printf '\001' && gzip -c lines && gzip -c short.txt; } >documents/text.gz
{ printf '\072' && cat lines; } >documents/packed.gz
{ printf '\053' && cat lines; } >documents/packed.zst
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
# The first byte: strict or not.
printf '1{"properties":{"a":{"type":"string","minLength":1,"maxLength":9},"b":{"$ref":"#/$defs/n"}},"required":["a"],"additionalProperties":{"type":["null","integer"]},'\
'"$defs":{"n":{"anyOf":[{"type":"array","items":{"$ref":"#/$defs/n"},"minItems":2,"maxItems":3},{"const":{"x":[1,true]}}]}}}' >schema/object
printf '0{"prefixItems":[{"enum":["a","ab",1.5,null]},true],"items":{"type":"object"},"minItems":3,"title":"t"}' >schema/list
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
cp "$ZUG_SRC"/tests/data/gguf/heads/*.gguf gguf/ # small ones: what they lack, others have
head -c 8000 "$ZUG_SRC/tests/data/gguf/model.gguf" >gguf/model
for folder in "$ZUG_SRC"/tests/data/quantized/*/; do # a config, and the weights
  { cat "$folder/config.json" && printf '#\n' && cat "$folder/model.safetensors"; } >quantized/$(basename "$folder")
done

cat >manifest/two <<'END'
{"format":"zug checkpoint","version":1,"checksum":"0000000000000000",
"step":5,"samples":40,"serial":2,"program":"0.1","model":"M","command":"zrun","recipe":"recipe r { }\n",
"facts":{"data":{"tokens":"11358"}},"file_limit":100,"files":[],"states":["exp_avg"],
"parameters":[{"path":"a","shape":[3,4],"checksums":["77ce7be96a85f744","724b25c4381713d8"]},
  {"path":"layer.0.w","shape":[],"checksums":["0000000000000000","724b25c4381713d8"]}]}
END
# A checkpoint of zeros, with its indices: the manifest's checksum is mended.
index() { # index BYTES NAME FILE ...
  printf '{"metadata":{"total_size":%d},\n"weight_map":{' $1 && shift
  while [ $# -gt 0 ]; do
    printf '\n  "%s":"%s"' $1 $2 && shift 2
    [ $# -eq 0 ] || printf ,
  done
  printf '}}\n'
}
{
  sed 's/"file_limit":100/"file_limit":20/' manifest/two
  printf '#\n'
  index 52 a model-00001-of-00002.safetensors layer.0.w model-00002-of-00002.safetensors
  printf '\n#\n'
  index 52 a.exp_avg optimizer-00001-of-00002.safetensors layer.0.w.exp_avg optimizer-00002-of-00002.safetensors
} >manifest/all
printf '{"step":%d,"steps":3,"loss":2.5e0,"grad_norm":null,"lr":1e-3,"tokens":512,"step_ms":36.5}\n' 1 2 3 >metrics/run
printf '{"step":3,"steps":3,"eval_batches":2,"eval_loss":2.25,"eval_ms":40}\n' >>metrics/run
printf '{"step":%d,"loss":%s}\n' 1 1e-240 2 1e240 3 -1e299 4 1e308 >metrics/odd

# The first byte says what: 0 and 1 a table, by its column `kind` or 1; 2 of llm.c; 3 of nanoGPT.
printf '\000size,kind\n1,"a"\n"2.5","b ""x"""\n\n-1e3,a\n' >table/names
printf '\0011,2,0\r\n3,4,1\r\n-1,5,6\r\n' >table/numbers
{ # llm.c's header: magic, version, tokens, and 253 numbers more
  printf '\002\210\330\064\001\001\0\0\0\004\0\0\0' && head -c 1012 /dev/zero
  printf '\001\0\002\0\003\0\377\304'
} >table/llmc
printf '\003\001\0\002\0\003\0' >table/nanogpt
for case in "$ZUG_SRC"/tests/data/hf/peft/*/; do cp "$case/adapter_config.json" adapter/$(basename "$case"); done
echo '{"peft_type":"LORA","r":2,"lora_alpha":3.5,"target_modules":["qk_proj","mlp.up_proj"],"rank_pattern":{"up_proj":1},"alpha_pattern":{"attn.qk_proj":0.5},"lora_dropout":0.1}' >adapter/two
echo '{"peft_type":"LORA","r":2,"lora_alpha":4,"target_modules":"all-linear","use_rslora":true,"x":null}' >adapter/one
cat >config/one <<'END'
{"architectures":["B"],"model_type":"mistral","hidden_size":8,"num_attention_heads":4,"rms_norm_eps":1e-06,
"rope_parameters":{"rope_theta":5e5,"rope_type":"default"},"rope_scaling":null,"tie_word_embeddings":true,
"num_key_value_heads":null,"bos_token_id":1,"x":{"__float__":"Infinity"},"torch_dtype":"bfloat16"}
END
printf '{"hidden_size":4,"architectures":["A"],"model_type":"llama","num_attention_heads":2,"rope_scaling":{"factor":8.0}}' \
  >config/two
{
  printf '{"displayTimeUnit":"ms","traceEvents":[\n'
  for rank in 0 1; do
    for step in 1 2; do
      for what in 'FWD(layer.0, mb 0)' 'RECV_ACT(mb 1)' 'OPT_STEP(layer)'; do
        printf '{"ph":"X","cat":"instr","pid":%d,"tid":0,"ts":%d.5,"dur":3,"name":"%s","args":{"step":%d}},\n' \
          $rank $((step * 10)) "$what" $step
      done
    done
  done
  printf '{"ph":"M","pid":0,"name":"process_name","args":{"name":"rank 0"}}\n]}\n'
} >trace/two
printf '# a cluster\nnode1 slots=4 max_slots=8\nnode-2:2\n  n_3.x\n' >hosts/three
# The first byte says what: 0 to 2 a request for completions, chats, messages, 3 texts, 4 ids, 5 an answer that may call tools.
printf '\000{"prompt":[[1,2],[3]],"max_tokens":3,"stop":["a"],"logit_bias":{"5":1.5},"n":2,"seed":7,"stream":true}' >serve/ids
printf '\000{"model":"m","prompt":["a","b\\u00e9"],"logprobs":2,"echo":true,"top_p":0.5,"stop_token_ids":[3]}' >serve/texts
printf '\001{"messages":[{"role":"user","content":[{"type":"text","text":"a"}]},{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{\\"x\\":1}"}}]}],"tools":[{"type":"function","function":{"name":"f"}}],"logprobs":true,"top_logprobs":1}' >serve/chat
printf '\002{"system":[{"type":"text","text":"s"}],"max_tokens":9,"stop_sequences":["x"],"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"tool_use","id":"i","name":"f","input":{"x":[1]}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"i","content":"r"}]}],"tools":[{"name":"f","input_schema":{"type":"object"}}]}' >serve/messages
printf '\003{"prompt":"abc","add_special_tokens":false}' >serve/text
printf '\004{"tokens":[1,255,7]}' >serve/tokens
printf '\005Let me.\n<tool_call>{"name": "f", "arguments": {"a": "\\"}{"}}</tool_call> <tool_call>\n{"name":"g","arguments":{}}' >serve/hermes
printf '\005{"name": "f", "parameters": {"a": [1, 2.5e3]}}; {"name": "g", "parameters": {}}' >serve/llama

for target in $targets; do
  "$ZUG_BUILD/tests/unit/fuzz/fuzz-$target" $target --seconds "$seconds" --seed "$seed" ||
    fail "fuzz-$target; the input that did it is in $(pwd)"
done
