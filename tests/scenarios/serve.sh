# zrun serve: clients of OpenAI's API get the texts that `zrun generate` writes, whole and in streams; what is wrong with a request costs
# nobody but its sender; clients that leave are forgotten; keys; a port that is taken; SIGTERM. On several ranks answers are the same bytes,
# and replicas do not wait for each other. A night asks for a minute, with 300 at once.
. "$ZUG_SRC/tests/scenarios/lib.sh"
. "$ZUG_SRC/tests/scenarios/lib_serve.sh"
need_mpi
for tool in python3 curl; do command -v $tool >/dev/null || { echo "no $tool here"; exit 77; }; done

cat >r.zug <<'END'
recipe learn { bind batch = 8, seq = 32   optimizer adamw(lr = 1e-2, b2 = 0.95)   clip 1.0 }
recipe t2 { bind batch = 8, seq = 64   mesh tensor = 2   split head, ffn, vocab over tensor else seq }
recipe p2 { bind batch = 8, seq = 64   mesh pipe = 2   stages over pipe by cost }
recipe d2 { bind batch = 8, seq = 64   mesh data = 2   split batch over data }
recipe pdt { bind batch = 4, seq = 64   mesh pipe = 2, data = 2, tensor = 2   split batch over data   split head, ffn, vocab over tensor else seq   stages over pipe by cost }
END
for i in $(seq 200); do printf 'the cat sat on the mat. '; done >text
ok zdata pack text -o text.bin
ok zc "$ZUG_SRC/examples/gpt2.zug" -o cat.zsg -q -D layers=2 -D heads=2 -D width=32 -D context=64 -D words=256
ok timeout -k 5 100 zrun train cat.zsg --recipe r.zug:learn --data text.bin --steps 60 --save w.safetensors --quiet
echo '{% for m in messages %}{{ m.content }}{% endfor %}' | tr -d '\n' >template.jinja
s="zrun serve cat.zsg --init w.safetensors --chat-template template.jinja"

# begin RANKS OPTION...: starts a server, on that many ranks
begin() {
  ranks=$1
  shift
  serving $(on "$ranks") $s "$@" || { cat server.txt; exit 77; }
}
end() { # CODE: it ends by SIGTERM, or what mpirun hands on of signals
  [ "$ranks" -eq 1 ] && kill -TERM $pid || kill -USR1 $pid
  wait $pid
  [ $? -eq "$1" ] || { cat server.txt; fail "a server that was ended has another code than $1"; }
}
web() { # METHOD PATH [KEY]: the status
  python3 - "$port" "$@" <<'END'
import http.client, sys
c = http.client.HTTPConnection('127.0.0.1', int(sys.argv[1]), timeout=20)
c.request(sys.argv[2], sys.argv[3], b'{"prompt": "a"}' if sys.argv[2] == 'POST' else None, {'Authorization': 'Bearer ' + sys.argv[4]} if len(sys.argv) > 4 else {})
print(c.getresponse().status)
END
}

begin 1
seconds=2
at_night && seconds=60
ok timeout -k 5 200 python3 "$ZUG_SRC/tests/scenarios/serve.py" "$port" $pid $seconds
cat out.txt
for answer in "the cat sat on the mat" "the cat sat in the hat" "mat. the dog" "mat. the cat"; do
  echo "{\"prompt\": \"$answer\", \"max_tokens\": 0, \"echo\": true, \"logprobs\": 0}"
done >scored.jsonl
ok zrun generate cat.zsg --init w.safetensors --prompts scored.jsonl -o scored.out
ok timeout -k 5 100 python3 "$ZUG_SRC/tests/scenarios/serve_clients.py" "$port" scored.out
cat out.txt
same() { # LAYOUT: all is answered as one rank does
  ok timeout -k 5 100 python3 "$ZUG_SRC/tests/scenarios/serve_same.py" "$port" same.$1
  cmp same.one same.$1 || fail "$1: other answers than one rank's"
}
same one
breaks 'cannot listen' $s --port "$port"
end 0

# ---- on several ranks ----
for layout in "2 t2" "2 p2" "2 d2" $(at_night && echo 8_pdt); do
  ranks=${layout%[ _]*} recipe=${layout#*[ _]}
  begin $ranks --recipe r.zug:$recipe --threads 1
  same $recipe
  if [ $recipe = d2 ] || at_night; then ok timeout -k 5 200 python3 "$ZUG_SRC/tests/scenarios/serve.py" "$port" $pid 0.5; fi
  end 0
done

# What begins as a text did goes to the replica that wrote it.
shared() { # PROMPT: so many of its tokens were there
  curl -s "http://127.0.0.1:$port/v1/completions" -d "{\"prompt\": $1, \"max_tokens\": 1}" | sed 's/.*"cached_tokens":\([0-9]*\).*/\1/'
}
begin 2 --recipe r.zug:d2 --threads 1
one='"one text of forty characters, or some more"' two='"two texts of forty characters, or even more"'
[ "$(shared "[$one, $two]") $(shared "$one") $(shared "$two") $(shared "$one") $(shared '"a text"')" = "0 32 32 32 0" ] || fail "a text does not go to where its beginning is"
end 0

# A replica that stands still holds up nobody but those whose answers it writes; a server that is to end waits for these.
begin 2 --recipe r.zug:d2 --threads 1
job=$pid
slow=$(rank_pid 1)
kill -STOP $slow
curl -sN "http://127.0.0.1:$port/v1/completions" -d '{"prompt": ["a", "b"], "max_tokens": 40, "temperature": 0, "stream": true}' >both.txt &
client=$!
for i in $(seq 100); do grep -q '"index":0.*"length"' both.txt && break; sleep 0.1; done
grep -q '"index":0.*"length"' both.txt || { cat both.txt; fail "a replica waits for another one"; }
grep -q '"index":1' both.txt && fail "a replica that stands still writes"
[ "$(web POST /v1/completions)" = 200 ] || fail "a request waits for a replica that stands still"
kill -USR1 $pid
for i in $(seq 50); do [ "$(web GET /health)" = 503 ] && break; sleep 0.1; done
[ "$(web POST /v1/completions)" = 503 ] || fail "a server that ends takes requests"
kill -CONT $slow
wait $client
grep -q '"index":1.*"length"' both.txt && grep -q DONE both.txt && ! grep -q error both.txt || { cat both.txt server.txt; fail "an answer that was under way is cut"; }
wait $pid || { cat server.txt; fail "a server that was ended while a replica wrote has another code than 0"; }
ranks=1

# A rank is lost in the middle of a stream, of this replica or another: its client is told, and the job ends.
MPIRUN="$MPIRUN --mca odls_base_sigkill_timeout 4"
ends() { # the job has come to its end, within six seconds
  for i in $(seq 60); do kill -0 $pid 2>/dev/null || break; sleep 0.1; done
  kill -0 $pid 2>/dev/null && fail "a server that lost a rank goes on"
}
for recipe in p2 d2; do
  begin 2 --recipe r.zug:$recipe --threads 1
  job=$pid
  lost=$(rank_pid 1)
  kill -STOP $lost
  curl -sN "http://127.0.0.1:$port/v1/completions" -d '{"prompt": ["a", "b"], "max_tokens": 60, "stream": true}' >lost.txt &
  client=$!
  sleep 0.5
  kill -KILL $lost
  wait $client
  grep -q '^data: {"error":' lost.txt && grep -q 'DONE' lost.txt || { cat lost.txt server.txt; fail "a client of a server that lost a rank is told nothing"; }
  ends
done
if at_night; then # a replica that hangs is found while the other one works
  begin 2 --recipe r.zug:d2 --threads 1 --hang-after 3s
  job=$pid
  kill -STOP $(rank_pid 1)
  for i in $(seq 200); do kill -0 $pid 2>/dev/null || break; web POST /v1/completions >/dev/null 2>&1; sleep 0.05; done
  ends
  grep -q 'nothing has come from rank 1' server.txt || { cat server.txt; fail "a replica that hangs is not found"; }
fi
ranks=1

echo secret >keys
begin 1 --api-key-file keys
[ "$(web POST /v1/completions)$(web POST /v1/completions other)$(web POST /v1/completions secret)$(web GET /health)" = 401401200200 ] || fail "keys"
end 0
# ---- kept: a server that was killed serves again ----
zkeep --wait 1s -- $s --port "$port" --quiet 2>kept.txt &
keeper=$!
trap 'kill -9 $keeper 2>/dev/null; pkill -9 -P $keeper' EXIT
serves() { # it answers within ten seconds
  for i in $(seq 100); do
    [ "$(web GET /health 2>/dev/null)" = 200 ] && return
    sleep 0.1
  done
  cat kept.txt
  fail "a server that is kept does not answer"
}
serves
sleep 1.5 # zkeep looks every second
pkill -9 -P $keeper
serves
kill -TERM $keeper
wait $keeper
[ $? -eq 0 ] && grep -q 'start 2' kept.txt || { cat kept.txt; fail "a server that is kept"; }

echo '{{ x | no_such_filter }}' >bad.jinja
mistake 'no_such_filter' zrun serve cat.zsg --init w.safetensors --chat-template bad.jinja --port 0
mistake 'reached from outside' $s --host 0.0.0.0
mistake '--host cannot be' $s --host example.org --open
mistake 'keys2' $s --api-key-file keys2 --port 0
exit 0
