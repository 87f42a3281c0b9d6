#!/bin/sh
# `make bench-serve`: what clients of `zrun serve` see at 1, 8 and 64 streams: requests/s, tokens/s, the time to the first token and
# from one token to the next; beside llama.cpp's server, if it is named. README.md says what the numbers are. Not a test.
#
#   ROUNDS=3   STREAMS="1 8 64"   PRECISION=bf16   THREADS=N   default: all processors
#   PROMPT=128 TOKENS=32          MODEL=llama (0.44 B), or tiny
#   LLAMA_SERVER=PATH  llama.cpp's llama-server    LLAMA_MODELS=DIR   the same model, as f32.gguf and bf16.gguf
set -eu
ZUG_BUILD=${ZUG_BUILD:-$(pwd)}
ZUG_SRC=${ZUG_SRC:-$(cd "$(dirname "$0")/.." && pwd)}
out=$ZUG_BUILD/tests/scratch/bench-serve
rounds=${ROUNDS:-3} streams=${STREAMS:-1 8 64} precision=${PRECISION:-bf16} threads=${THREADS:-$(nproc)}
prompt=${PROMPT:-128} tokens=${TOKENS:-32} llama=${LLAMA_SERVER:-} ggufs=${LLAMA_MODELS:-.} port=${PORT:-18643}
PATH=$ZUG_BUILD:$PATH
most=1 server=
for n in $streams; do [ "$n" -le $most ] || most=$n; done
length=$((prompt + tokens))

say() { echo "bench-serve: $*" >&2; }
die() {
  say "$*"
  exit 1
}
if [ ! -x "$ZUG_BUILD/zrun" ] || ! command -v python3 >/dev/null; then
  echo "bench-serve: no zrun or no python3 here, so there is nothing to measure"
  exit 0
fi
case ${MODEL:=llama} in
llama) words=32000 sizes="layers=24 heads=16 kv_heads=8 inner=4096 width=1024 words=32000" ;;
tiny) words=512 sizes="layers=2 heads=4 kv_heads=2 inner=128 width=64 words=512" ;;
*) die "no model '$MODEL'; there are llama and tiny" ;;
esac
rm -rf "$out" && mkdir -p "$out" && cd "$out"
trap '[ -z "$server" ] || kill -9 $server 2>/dev/null' EXIT

# shellcheck disable=SC2046,SC2086 # words are wanted
zc -q "$ZUG_SRC/examples/llama3.zug" -o m.zsg $(printf -- '-D %s ' $sizes)
echo 'recipe initial { bind batch = 1, seq = 64 optimizer sgd(lr = 1e-3) }' >r.zug
zrun train m.zsg --recipe r.zug:initial --steps 0 --save w.safetensors --threads "$threads" >weights.out

# serve NAME COMMAND...: runs a server while the load of all numbers of streams is on it
serve() {
  name=$1
  shift
  "$@" >"$name.out" 2>&1 &
  server=$!
  until python3 -c "import urllib.request as u; u.urlopen('http://127.0.0.1:$port/health')" 2>/dev/null; do
    kill -0 $server 2>/dev/null || die "$name does not begin: $(tail -n 2 "$name.out")"
    sleep 0.2
  done
  for n in $streams; do
    numbers=$(python3 "$ZUG_SRC/bench/serve.py" "$port" "$n" $((2 * n)) "$prompt" "$tokens" $words) || die "$name, $n streams"
    echo "$name $n $numbers" >>all.txt
  done
  kill $server
  wait $server || true
  server=
}

i=1
while [ $i -le "$rounds" ]; do
  serve zug zrun serve m.zsg --init w.safetensors --port "$port" --precision "$precision" --threads "$threads" \
    --sequences "$most" --length "$length" --draft-tokens 0
  [ -z "$llama" ] || serve llama.cpp "$llama" -m "$ggufs/$precision.gguf" --port "$port" -t "$threads" -np "$most" \
    -c $((most * (length + 1))) --no-webui
  say "round $i of $rounds"
  i=$((i + 1))
done
awk '
  function median(k, f,   i, j, t, n, x) {
    n = count[k]
    for (i = 1; i <= n; i++) x[i] = value[k, f, i]
    for (i = 2; i <= n; i++) for (j = i; j > 1 && x[j] < x[j - 1]; j--) { t = x[j]; x[j] = x[j - 1]; x[j - 1] = t }
    return n % 2 ? x[(n + 1) / 2] : (x[n / 2] + x[n / 2 + 1]) / 2
  }
  { k = $1 " " $2; if (!count[k]++) order[++keys] = k; for (f = 3; f <= NF; f++) value[k, f, count[k]] = $f }
  END {
    printf "%-12s%8s%12s%10s%16s%12s%18s%12s\n", "", "streams", "requests/s", "tokens/s", "first token ms", "95 %", "between tokens ms", "95 %"
    for (i = 1; i <= keys; i++) {
      k = order[i]; split(k, part, " ")
      printf "%-12s%8d%12.3f%10.1f%16.1f%12.1f%18.1f%12.1f\n", part[1], part[2], median(k, 3), median(k, 4), median(k, 5), median(k, 6), median(k, 7), median(k, 8)
    }
  }' all.txt
