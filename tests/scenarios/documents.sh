# Documents that share a sample: the inputs `doc` and `place` of a model are made of where documents begin, the same in every
# layout; and documents that are kept apart by them compute what each computes alone.
. "$ZUG_SRC/tests/scenarios/lib.sh"
need_mpi
compare=$ZUG_BUILD/tests/scenarios/tools/compare_runs
cp "$ZUG_SRC/tests/data/models/documents.zug" .
ok zc documents.zug -m Apart -o apart.zsg
ok zc documents.zug -m Table -o table.zsg

# Lines of 1 to 40 bytes, each with an end token: some are longer than a sample, some samples have many.
sed 's/^ *//; s/[\\"]//g; /^$/d' "$ZUG_SRC/LICENSE" | awk '{ printf "{\"text\":\"%s\"}\n", substr($0, 1, NR * 7 % 40 + 1) }' >lines.jsonl
ok zdata pack lines.jsonl --end 0 -o lines.bin
ok zdata show lines.bin
says '[0-9]+ tokens, .*, 1[0-9][0-9] documents$'

train() { # NAME GRAPH RECIPE OPTION...
  name=$1 graph=$2 recipe=$3
  shift 3
  ranks=$(echo "$recipe" | sed 's/.*[^0-9]//')
  ok timeout -k 5 100 $(on "${ranks:-1}") zrun train "$graph.zsg" --recipe "documents.zug:$recipe" --steps 4 --log "$name" "$@"
}
train one apart one --data lines.bin
for recipe in data2 zero3_2 context2 tensor2 pipe2 all8; do
  train $recipe apart $recipe --data lines.bin
  ok "$compare" --loss 1e-5 --norm 1e-4 $recipe/metrics.jsonl one/metrics.jsonl
done
train table table one --data lines.bin
train table2 table context2 --data lines.bin
ok "$compare" --loss 1e-5 --norm 1e-4 table2/metrics.jsonl table/metrics.jsonl

# Two documents of four tokens in a sample of eight are what two samples of four are, but for the target at the seam. All bytes
# are the same, so that seam has the same target as well. (Without `same` or `at` the second would see the first.)
loss() { sed -n 's/^{"step":1,.*"loss":\([^,]*\),.*/\1/p' "$1/metrics.jsonl"; }
for k in 1 2 3 4 5; do printf '{"text":"abc"}\n'; done >same.jsonl
ok zdata pack same.jsonl --end 100 -o same.bin
sed 's/seq = 8, batch = 2/seq = 4, batch = 4/' documents.zug >four.zug
train eights apart short --data same.bin --order sequential
ok timeout -k 5 100 zrun train apart.zsg --recipe four.zug:short --steps 4 --log fours --data same.bin --order sequential
ok "$compare" --loss 1e-5 --norm 1e-4 eights/metrics.jsonl fours/metrics.jsonl
printf 'abcdabcdabcdabcdabcd' >lone.txt
ok zdata pack lone.txt lone.txt -o two.bin # the same bytes in two documents, which begin elsewhere
train two apart short --data two.bin --order sequential
[ "$(loss two)" != "$(loss eights)" ] || fail "where documents begin changes nothing"

# ---- what is refused, before any training ----
ok zdata pack lone.txt -o lone.bin
refuses 'lone.bin does not know where its documents begin, which .(doc|place). is made of' \
  timeout -k 5 100 zrun train apart.zsg --recipe documents.zug:short --steps 1 --data lone.bin
says 'make it anew of two texts or more: zdata pack'
refuses 'lone.bin does not know' timeout -k 5 100 zrun train apart.zsg --recipe documents.zug:short --steps 1 --data two.bin:1,lone.bin:1
exit 0
