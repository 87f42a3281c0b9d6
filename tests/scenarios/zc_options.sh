# zc's command line: what it prints, writes and returns.
. "$ZUG_SRC/tests/scenarios/lib.sh"
zc=$ZUG_BUILD/zc
small="-D layers=2 -D heads=2 -D width=8 -D words=16 -D context=8"

# exits CODE COMMAND...: the exit code, exactly.
exits() {
  want=$1
  shift
  "$@" >out.txt 2>&1
  code=$?
  [ $code -eq "$want" ] || { cat out.txt; fail "exit code $code, wanted $want: $*"; }
}

# ---- compiling ----
ok $zc "$ZUG_SRC/examples/gpt2.zug" -o gpt2.zsg $small
says '^gpt2\.zsg: GPT2, 1,952 parameters; batch, seq, embed 8, head 2, hd 4, ffn 32, vocab 16, pos 8; hash [0-9a-f]{32}$'
says "hash $(od -A n -t x8 -j 24 -N 16 gpt2.zsg | tr -d ' ')\$" # as it is in the file
cp gpt2.zsg first.zsg
ok $zc "$ZUG_SRC/examples/gpt2.zug" -q -o gpt2.zsg $small
[ -s out.txt ] && fail "-q is not quiet"
cmp gpt2.zsg first.zsg || fail "not the same bytes twice"
ls | grep -q '\.tmp$' && fail "a temporary file is left"
ok $zc dump gpt2.zsg
says '^graph GPT2$'
says 'param layer\.\*\.attn\.wq\[embed, head, hd\] ~ normal\(0\.02\)'
cp out.txt dumped.txt
ok $zc "$ZUG_SRC/examples/gpt2.zug" -d final $small
sed 1d out.txt | cmp - dumped.txt || fail "the file holds something else than the last pass made"

for pass in parse elab simpl grad final; do
  ok $zc "$ZUG_SRC/examples/llama3.zug" -d $pass
  [ $pass = parse ] && says '^model Llama3' || says "^# after $pass$"
done

# ---- what a library holds ----
ok $zc --list std.nn
says '^Linear\[i, o\]\(x: real\[\.\., i\], .*std = 0\.02.*\) -> real\[\.\., o\]$'
says '^RMSNorm\[e\]\(x: real\[\.\., e\], .*\) -> real\[\.\., e\]$'
says '^    Zhang and Sennrich 2019'
mkdir -p lib/my && cat >lib/my/parts.zug <<'END'
# Of the file.

# What it does;
# and how.
block Two[.., a](
    x: real[..],  # the first
    n = 2) -> real[..],
  real[.., a] { return x, random[.., a](1) }
model None { axis batch  input x: real[batch]  param w[batch2] = 1  axis batch2 = 1  loss x per x }
END
ok $zc --list my.parts -I lib
printf 'Two[.., a](x: real[..], n = 2) -> real[..], real[.., a]\n    What it does;\n' | cmp - out.txt || fail "--list"
cp out.txt listed.txt
ok $zc --list lib/my/parts.zug
cmp out.txt listed.txt || fail "--list of a file"
exits 1 $zc --list my.parts
says 'error\[Z0005\]: no file my/parts\.zug'
exits 2 $zc --list std.nn "$ZUG_SRC/examples/mlp.zug"

# ---- an output is whole or not touched ----
echo 'model M { axis batch  input x: real[batch]  loss y per x }' >wrong.zug
exits 1 $zc wrong.zug -o gpt2.zsg
says 'error\[Z0102\]: unknown name `y`'
cmp gpt2.zsg first.zsg || fail "a failed run touched its output"
exits 1 $zc "$ZUG_SRC/examples/mlp.zug" -o no/such/folder/m.zsg
says 'cannot create no/such/folder/m.zsg'
exits 2 $zc wrong.zug -o wrong.zug
mkdir lib2 && echo 'block same(x: real[..]) -> real[..] { return x }' >lib2/same.zug && cp lib2/same.zug same.txt
echo 'use same model M { axis batch  input x: real[batch]  loss same.same(x) per x }' >uses.zug
exits 1 $zc uses.zug -I lib2 -o lib2/same.zug
says '-o lib2/same\.zug would overwrite lib2/same\.zug, which the program uses'
cmp lib2/same.zug same.txt || fail "a source was overwritten"
mkdir folder.zsg
exits 1 $zc "$ZUG_SRC/examples/mlp.zug" -o folder.zsg
ls | grep -q '\.tmp$' && fail "a temporary file is left"

# ---- models, overrides, search path ----
cat >two.zug <<'END'
use my.blocks as my
model A { axis batch  input x: real[batch]  loss my.same(x) per x }
model B(n = 2) { axis batch, a = n  input x: real[batch, a]  loss x per x }
END
mkdir -p path/my
echo 'block same(x: real[..]) -> real[..] { return x }' >path/my/blocks.zug
exits 1 $zc two.zug -o two.zsg
says 'error\[Z0005\]'
exits 1 $zc two.zug -I path -o two.zsg
says 'error\[Z0106\]'
ok $zc two.zug -I path -m B -D n=7 -o two.zsg
says 'B, 0 parameters; batch, a 7;'
exits 1 $zc two.zug -I path -m C -o two.zsg
says 'error\[Z0106\]'
exits 1 $zc two.zug -I path -m B -D m=7 -o two.zsg
says '-D m=7: model B has no static `m`'

# ---- checking, messages ----
for f in "$ZUG_SRC"/examples/*.zug "$ZUG_SRC"/stdlib/std/*.zug; do
  ok $zc --check "$f"
  case $f in */clip.zug) says 'warning.Z0705'; continue ;; esac # its loss is of all pairs of a micro-batch
  [ -s out.txt ] && { cat out.txt; fail "a message about $f"; }
done
echo 'model M { axis batch, a = 2  input x: real[batch]  param w[a] = 1  loss x per x }' >warn.zug
ok $zc --check warn.zug
says 'warning\[Z0112\]'
exits 1 $zc --check --warn-as-error warn.zug
exits 1 $zc --check --diag json wrong.zug
[ "$(wc -l <out.txt)" -eq 1 ] || fail "not one line for one message"
says '^\{.*"code":"Z0102".*\}$'
ok $zc --explain Z0201
says '^## Z0201'

echo 'model M { axis batch input x: real[batch] loss x per }' >syntax.zug
exits 1 $zc fmt syntax.zug
exits 1 $zc fmt --check syntax.zug uses.zug
exits 2 $zc fmt

# ---- usage ----
ok $zc --version
says '^zc \(zug\) [0-9]'
ok $zc --help
says '^usage: zc'
for wrong in "" "-o x.zsg" "warn.zug" "warn.zug two.zug -o x" "--check warn.zug -o x" "warn.zug -d graad" \
  "warn.zug -D n -o x" "warn.zug --diag xml --check" "--explain Z9999" "--no-such" "dump" "dump a b"; do
  exits 2 $zc $wrong
done
exits 2 $zc warn.zug two.zug -o x
says 'one input file at a time: `warn\.zug` and `two\.zug`'
exits 2 $zc warn.zug -d graad
says '^zc: -d: no such pass `graad`; did you mean `grad`\?$'
exits 2 $zc warn.zug -d nothing
says '^zc: -d: no such pass `nothing`$'
for wrong in =3 n= n; do
  exits 2 $zc warn.zug -D $wrong -o x
  says "^zc: -D $wrong: write -D name=value$"
done
for count in 999 1,000 12,345 999,999 1,000,000; do
  n=$(echo $count | tr -d ,)
  echo "model M { axis batch, n = $n  input x: real[batch]  param w[n] = 1  loss x * sum[n](w) per x }" >count.zug
  ok $zc count.zug -o count.zsg
  says "^count.zsg: M, $count parameters; batch, n $n; hash"
done
exits 1 $zc --check no-such-file.zug
exits 1 $zc dump no-such-file.zsg
exits 1 $zc dump warn.zug
head -c 300 first.zsg >short.zsg
exits 1 $zc dump short.zsg
exits 1 sh -c "$zc --help >/dev/full"

# ---- statics from a config.json ----
config() { # FOLDER MODEL SUMMARY: a folder as transformers saved it
  ok $zc "$ZUG_SRC/examples/$2.zug" --config "$ZUG_SRC/tests/data/hf/$1/config.json" -o "$1.zsg"
  says "^$1\.zsg: $3; hash"
  ok $zc dump "$1.zsg"
}
config gpt2 gpt2 'GPT2, 121,344 parameters; batch, seq, embed 64, head 4, hd 16, ffn 256, vocab 300, pos 32'
says '^weights bare layer\.\*\.mlp\.w1\[embed: 256, ffn: 1\] = "h\.\*\.mlp\.c_fc\.weight"\[64, 256\]$'
says '^weights bare ignore "h\.\*\.attn\.bias"$'
says '^weights bare config n_embd = 64$'
config llama llama3 'Llama3, 100,160 parameters; batch, seq, embed 64, kv 2, grp 2, hd 16, ffn 96, vocab 300'
says '^weights hf config rope_scaling = null$'
config llama_tied llama3 'Llama3, 80,960 parameters; batch, seq, embed 64, kv 2, grp 2, hd 16, ffn 96, vocab 300'
says '^weights hf config rope_scaling\.original_max_position_embeddings = 32$'
config qwen3 qwen3 'Qwen3, 105,664 parameters; batch, seq, embed 64, kv 2, grp 2, hd 32, ffn 96, vocab 300'
says '^weights hf layer\.\*\.attn\.wk\[embed: 1, kv: 2048, hd: 64\] = "model\.layers\.\*\.self_attn\.k_proj\.weight"\[64, 64\]$'
# The folder means the same as the file in it.
for folder in gpt2 qwen3; do
  ok $zc "$ZUG_SRC/examples/$folder.zug" --config "$ZUG_SRC/tests/data/hf/$folder" -o of_folder.zsg
  cmp of_folder.zsg $folder.zsg || fail "$folder: another graph of the folder"
done
mkdir empty_folder
exits 1 $zc "$ZUG_SRC/examples/gpt2.zug" --config empty_folder -o of_folder.zsg
says 'empty_folder/config.json'
llama="$zc $ZUG_SRC/examples/llama3.zug -o cfg.zsg --config"
exits 1 $llama "$ZUG_SRC/tests/data/hf/qwen3/config.json"
says 'Z1008.: .*qwen3/config.json: `model_type` is "qwen3", model Llama3 needs "llama" or "mistral"$'
sed 's/"default"/"yarn"/' "$ZUG_SRC/tests/data/hf/llama/config.json" >yarn.json
exits 1 $llama yarn.json
says 'Z1008.: yarn.json: `rope_parameters.rope_type` is "yarn", model Llama3 needs "default"$'
# as before version 5 of transformers
old() { # ROPE: its two keys
  sed '/"rope_parameters"/,/}/d; /"head_dim"/d; /"num_key_value_heads"/d; 1s/$/'"$1"'/' "$ZUG_SRC/tests/data/hf/llama/config.json" >old.json
}
old '"rope_theta": 500000, "rope_scaling": null, "head_dim": null,'
ok $llama old.json
says 'kv 4, grp 1, hd 16'
ok $zc dump cfg.zsg
says '^weights hf config rope_parameters.rope_theta = 500000.0$'
old '"rope_theta": 1e4, "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 64},'
ok $llama old.json
ok $zc dump cfg.zsg
says ' = rotate\['
old '"rope_scaling": {"type": "linear", "factor": 2.0},'
exits 1 $llama old.json
says '`rope_scaling.type` is "linear", model Llama3 needs "llama3"$'
says 'there is no `rope_scaling.low_freq_factor`, which says what `low` is$'
old '"rope_scaling": {"type": "dynamic"},'
exits 1 $llama old.json
says '`rope_scaling` is \{"type":"dynamic"\}, model Llama3 needs null$'
old '"sliding_window": 4096, "attention_bias": true, '
exits 1 $llama old.json
says '`sliding_window` is 4096, model Llama3 needs null$'
ok $llama "$ZUG_SRC/tests/data/hf/llama/config.json" -D layers=3
says 'Z1010.: .* `num_hidden_layers` is 2, the command line makes it 3$'
exits 1 $llama "$ZUG_SRC/tests/data/hf/llama/config.json" -D layers=3 --warn-as-error
sed 's/"num_hidden_layers": 2/"num_hidden_layers": 2.5/' "$ZUG_SRC/tests/data/hf/llama/config.json" >half.json
exits 1 $llama half.json
says 'note: layers = 2\.5, from half\.json$'
exits 1 $llama no-such.json
says 'Z1009.: cannot open no-such.json'
[ "$(grep -c '^error' out.txt)" = 1 ] || { cat out.txt; fail "more is said of a file that is not there"; }
exits 1 $llama "$ZUG_SRC/tests/data/hf/llama/config.json" --names gguf
says 'Z1007.: --names gguf'
exits 2 $zc "$ZUG_SRC/examples/llama3.zug" --names hf -o cfg.zsg
cp old.json cfg.json
exits 2 $zc "$ZUG_SRC/examples/llama3.zug" --config cfg.json -o cfg.json
cmp old.json cfg.json || fail "the config was overwritten"

# ---- many files, little memory ----
mkdir many && for i in $(seq 300); do echo "use many.f$i" >>many.zug; echo "# $i" >"many/f$i.zug"; done
refuses 'Z0003.: a program has at most 256 files' zc many.zug --check
[ "$(grep -c Z0003 out.txt)" = 1 ] || { cat out.txt; fail "said more than once"; }
awk 'BEGIN { print "model M { axis batch input x: real[batch] y = x"; for (i = 0; i < 20000; i++) print "y = y + " i; print "loss y per x * 0 + 1 }" }' >long.zug
ok zc long.zug -o long.zsg
if (ulimit -v 40000 && zc --version) >/dev/null 2>&1; then # not with sanitizers
  refuses '^out of memory: [0-9]+ bytes wanted' sh -c 'ulimit -v 40000; exec zc long.zug -o long.zsg'
fi
