# The rooms keep their walls: who includes whom, where MPI may be seen, and what libraries must not call.
. "$ZUG_SRC/tests/scenarios/lib.sh"
cd "$ZUG_SRC" || exit 99
broken=0

# wall ROOM PATTERN [OPTION...]: every quoted include of the room's files (that find finds with these options) must match
# PATTERN (grep -E, whole path).
wall() {
  room=$1 pattern=$2
  shift 2
  find "$room" "$@" -name '*.[chly]' -exec grep -HnE '^[[:space:]]*#[[:space:]]*include "' {} + |
    grep -vE "include \"($pattern)\"" && { echo "^ $room must not include these"; broken=1; }
}
# calls LIBRARY: "caller callee" for every two of its files of which one calls the other.
calls() {
  nm -A "$ZUG_BUILD/$1" | awk '{ n = split($1, at, ":"); file = at[n - 1]; type = $(NF - 1); if (type == "U") use[file " " $NF]
    else if (type ~ /^[TDRB]$/) home[$NF] = file }
    END { for (u in use) { split(u, x, " "); if (x[2] in home && home[x[2]] != x[1]) print x[1], home[x[2]] } }' | sort -u
}
wall base 'base/.*'
wall graph 'base/.*|graph/.*'
wall lang 'base/.*|lang/.*'
wall compiler 'base/.*|graph/.*|lang/(lang|ast)\.h|compiler/.*'
wall kernels 'base/.*|graph/((ops|attend|conv|linear)\.h|(ops|pointwise)\.def)|lang/updates\.def|kernels/.*'
plan='base/.*|graph/(graph|ragged)\.h|lang/lang\.h|kernels/(kernels|optimize)\.h|runtime/plan/(mesh|values|program|steps|plan|text)\.h'
wall runtime/machine 'base/.*|runtime/machine/.*'
wall runtime/plan "$plan|graph/stream\.h|runtime/plan/(bind/bind|local/local|schedule/schedule|stream/stream|time/time|search/search|output/[a-z]*)\.h|runtime/plan/[a-z]*\.def|kernels/devices\.h|runtime/machine/machine\.h" -maxdepth 1
wall runtime/plan/mesh "$plan|runtime/plan/[a-z]*\.def"
wall runtime/plan/bind "$plan|runtime/plan/bind/.*"
wall runtime/plan/stream "$plan|graph/stream\.h|runtime/plan/stream/.*"
wall runtime/plan/local "$plan|runtime/plan/bind/bind\.h|runtime/plan/local/.*"
wall runtime/plan/schedule "$plan|lang/schedules\.def|runtime/plan/(bind/bind|local/local)\.h|runtime/plan/schedule/.*"
wall runtime/plan/meaning "$plan|kernels/residue\.h|runtime/plan/meaning/.*"
wall runtime/plan/check "$plan|runtime/plan/check/.*"
wall runtime/plan/time "$plan|lang/cluster\.def|runtime/plan/time/.*"
wall runtime/plan/output "$plan|runtime/plan/output/.*|runtime/plan/time/time\.h"
wall runtime/plan/search "$plan|runtime/plan/search/.*|runtime/plan/time/time\.h"
grep -lE 'include "runtime/plan/(local|schedule)/' runtime/plan/*.[ch] | grep -vxF runtime/plan/plan.c &&
  { echo "^ only runtime/plan/plan.c lists the passes of its rooms"; broken=1; }
grep -lE '(kernels/devices|runtime/machine/machine)\.h' runtime/plan/*.[ch] | grep -vxF runtime/plan/zplan.c &&
  { echo "^ a plan knows no devices; only runtime/plan/zplan.c asks one"; broken=1; }
# Calls between files of a plan go down: tsort finds a circle. So do calls between its rooms, given from the ground up; plan.c,
# which lists the passes, is under the search.
calls=$(calls libplan.a)
[ "$(echo "$calls" | wc -l)" -gt 50 ] || fail "the files of libplan.a do not call each other"
echo "$calls" | tsort >/dev/null || { echo "^ these files of libplan.a call each other in a circle"; broken=1; }
{ (cd runtime/plan && ls -- */*.c plan.c); echo "$calls"; } | awk -v order='mesh meaning check bind stream local schedule time output plan.c search' '
  BEGIN { n = split(order, room, " "); for (i = 1; i <= n; i++) floor[room[i]] = i }
  NF == 1 { name = $1; sub(/.*\//, "", name); sub(/c$/, "o", name); place = $1; sub(/\/.*/, "", place)
    if (name in at) { print "two files are called " name; bad = 1 }
    at[name] = place; if (!(place in floor)) { print place " is on no floor"; bad = 1 }; next }
  at[$1] != at[$2] && floor[at[$2]] >= floor[at[$1]] { print at[$1] ": " $1 " calls " $2 " of " at[$2]; bad = 1 }
  END { exit bad }' || { echo "^ rooms of runtime/plan call only those below them"; broken=1; }
# The proofs call nothing that made the plan: only each other, the definitions of mesh.c, pieces.c and vstages.c, and words.c.
proofs=$(cd runtime/plan && ls -- check/*.c meaning/*.c | sed 's/.*\///; s/c$/o/' | paste -sd '|')
echo "$calls" | grep -E "^($proofs) " | grep -vE " ($proofs|mesh\.o|pieces\.o|vstages\.o|words\.o)\$" &&
  { echo "^ runtime/plan/check and meaning must not call these"; broken=1; }
# The rooms of exec lie on each other: each may include what lies below, no more than it needs of it.
exec=runtime/exec
wall $exec/comm "base/.*|kernels/(kernels|elem)\.h|$exec/comm/.*"
wall $exec/data "base/.*|kernels/elem\.h|$exec/data/.*"
wall $exec/device "base/.*|graph/graph\.h|kernels/(kernels|devices|optimize)\.h|kernels/cuda/(cuda|optimize)\.h|runtime/plan/plan\.h|$exec/comm/(comm|same|watch)\.h|$exec/device/.*"
engine_needs='base/.*|graph/(graph|ragged)\.h|kernels/kernels\.h|runtime/plan/((plan|text)\.h|[a-z]*\.def)'
engine_needs="$engine_needs|$exec/comm/(comm|watch)\.h|$exec/data/data\.h|$exec/device/device\.h"
wall $exec/ckpt "base/.*|kernels/elem\.h|$exec/ckpt/.*"
wall $exec/log "base/.*|$exec/log/.*"
wall $exec/gguf "base/.*|$exec/ckpt/weights\.h|$exec/gguf/.*"
wall $exec/hub "base/.*|kernels/packed\.h|graph/(adapter|graph)\.h|$exec/ckpt/.*|$exec/gguf/gguf\.h|$exec/hub/.*"
wall $exec/shape "base/.*|runtime/text/text\.h|$exec/shape/.*"
wall $exec/generate "base/.*|$exec/shape/shape\.h|$exec/generate/.*"
wall $exec/answer "base/.*|graph/graph\.h|lang/lang\.h|compiler/compiler\.h|runtime/text/(text|template/template)\.h|$exec/(generate/generate|gguf/gguf|shape/shape)\.h|$exec/answer/.*"
wall $exec/calibrate "base/.*|graph/attend\.h|lang/lang\.h|runtime/plan/(plan|time/time)\.h|$exec/(comm/(comm|same|watch)|device/(device|memory)|exit)\.h|$exec/calibrate/.*"
wall $exec/engine "$engine_needs|runtime/plan/time/time\.h|$exec/engine/.*"
wall $exec/state "$engine_needs|graph/adapter\.h|$exec/engine/(engine|internal)\.h|$exec/ckpt/.*|$exec/hub/hub\.h|$exec/state/.*"
wall $exec 'base/.*|graph/(adapter|graph|attend|stream|ragged)\.h|lang/lang\.h|compiler/compiler\.h|runtime/text/(text|template/template)\.h|kernels/(kernels|devices|elem|packed)\.h|kernels/optimize\.h|kernels/cuda/(cuda|optimize)\.h|runtime/plan/((plan|text)\.h|(time/time|search/search|stream/stream)\.h|[a-z]*\.def)|kernels/debug\.def|runtime/machine/machine\.h|runtime/exec/.*'
wall runtime/text 'base/.*|runtime/text/.*'
wall runtime/zdata 'base/.*|runtime/exec/data/data\.h|runtime/text/(text|template/template)\.h|runtime/zdata/.*'
wall runtime/keep 'base/.*|runtime/exec/exit\.h|runtime/keep/.*'
wall runtime/zlog 'base/.*|runtime/zlog/.*'
grep -rl --include='*.[ch]' 'exec/run/run\.h' runtime | grep -vE "^$exec/(run/.*|zrun\.c)$" && { echo "^ only zrun knows a run as a whole"; broken=1; }
# What the engine's files share is theirs and that of the room on top of them.
grep -l 'exec/engine/internal\.h' $exec/*.[ch] $exec/comm/* $exec/data/* $exec/device/* $exec/ckpt/* $exec/hub/* &&
  { echo "^ only $exec/engine and $exec/state may include engine/internal.h"; broken=1; }

# Files of a room of exec are floors, given from the ground up: none calls a function (zx_...) of a floor above its own.
# A function is where its definition is, at the beginning of a line with its `{`.
floors() {
  room=$exec/$1
  shift
  (cd "$room" && awk -v room="$room" '
    FNR == 1 { floor++; name[floor] = FILENAME }
    { code = $0; sub(/\/\*.*/, "", code); text[floor] = text[floor] " " code }
    /^[A-Za-z].*[ *]zx_[a-z0-9_]*\(/ && !/;[ \t]*(\/\*.*)?$/ {
      f = $0; sub(/\(.*/, "", f); sub(/.*[ *]/, "", f); at[f] = floor
    }
    END {
      for (i = 1; i <= floor; i++) {
        n = split(text[i], word, /[^A-Za-z0-9_]+/)
        for (k = 1; k <= n; k++)
          if (at[word[k]] > i && !told[i, word[k]]++) { print room "/" name[i] " uses " word[k] " of " name[at[word[k]]]; bad = 1 }
      }
      exit bad
    }' "$@") || { echo "^ files of $room call no higher floor"; broken=1; }
  for f in "$room"/*.c; do
    case " $* " in *" ${f##*/} "*) ;; *) echo "$f is on no floor: see tests/scenarios/rooms.sh"; broken=1 ;; esac
  done
}
floors comm say.c post.c reap.c vigil.c watch.c wait.c agree.c launch.c combine.c self.c shm.c p2p_reduce.c same.c mpi_ops.c mpi_group.c mpi.c
floors device memory.c cpu.c staged.c cuda_peak.c nccl.c cuda.c registry.c
floors engine buffers.c tokens.c cut.c narrow.c accumulate.c exchange.c stall.c trace.c queues.c ring.c views.c halo.c collective.c rows.c profile.c nan.c node.c feed.c grads.c averages.c optimizer.c muon.c compute.c play.c \
  fallback.c capture.c setup.c engine.c generate.c admit.c beside.c
floors log scalars.c terminal.c lines.c metrics.c events.c log.c
floors ckpt weights.c contents.c manifest.c look.c folder.c zckpt_read.c zckpt_show.c zckpt_verify.c zckpt_diff.c \
  zckpt_weights.c zckpt.c
floors gguf blocks.c file.c names.c tensors.c tokenizer.c config.c folder.c
floors hub coded.c taking.c awq_gptq.c compressed_tensors.c floats.c bitsandbytes.c quantized.c shards.c box.c map.c config.c adapter.c pack.c export.c zckpt_export.c
floors shape grammar.c literals.c schema.c automaton.c trie.c masks.c
floors generate pages.c sample.c shared.c draft.c scheduler.c
floors answer query.c folder.c chats.c shipped.c words.c packed.c answers.c results.c
floors serve calls.c connection.c job.c part.c messages.c forced.c chat.c request.c endpoints.c metrics.c logprobs.c openai.c reply.c loop.c http.c
floors run agree.c machine.c inputs.c layout.c model.c new_tokens.c answering.c sample.c start.c train.c routes.c lanes.c generate.c chat.c serve.c
floors state slices.c packed.c walk.c init.c grow.c load.c save.c predict.c finite.c moments.c snapshot.c alike.c writer.c checkpoints.c resume.c

rooms="base graph lang compiler kernels runtime"
# MPI is seen in a few files.
grep -rlE '\bMPI_[A-Z]|<mpi\.h>' $rooms --include='*.[ch]' | grep -vE '^runtime/exec/comm/mpi[a-z_]*\.[ch]$' &&
  { echo "^ only runtime/exec/comm/mpi* may use MPI"; broken=1; }
# So is NCCL; CUDA in the files of its device, and in the kernels. Others may say "cuda" only to name that device.
grep -rlE '\bnccl[A-Z]|<nccl\.h>' $rooms --include='*.[ch]' | grep -vxF runtime/exec/device/nccl.c &&
  { echo "^ only runtime/exec/device/nccl.c may use NCCL"; broken=1; }
grep -rlE '\bcuda[A-Z]|<cuda|zk_cuda_|kernels/cuda/' $rooms --include='*.[ch]' |
  grep -vE '^(kernels/cuda/.*|runtime/exec/device/(cuda[a-z_]*\.[ch]|nccl\.c))$' &&
  { echo "^ only kernels/cuda, device/cuda* and device/nccl.c may use CUDA"; broken=1; }
# No environment variables (but what Open MPI and NCCL themselves are told); nothing but a program's main file ends the process.
grep -rnE '\b(getenv|setenv|putenv)\(' $rooms --include='*.c' | grep -vE '^runtime/exec/(comm/launch|comm/mpi|device/nccl)\.c:' &&
  { echo "^ no environment variables"; broken=1; }
grep -rnE '(^|[^a-z_.])exit\(' $rooms --include='*.c' | grep -vE '(main|z[a-z]+)\.c:' &&
  { echo "^ libraries return, they do not exit"; broken=1; }

# Words that were replaced stay so. Comments of a plan say who does what: they begin with the subject, or with the verb.
for word in $(sed -n '/^[^#]/s/ .*//p' tests/words.txt); do
  grep -rnw --include='*.[chly]' --include='*.def' -e "$word" $rooms && { echo "^ $(grep "^$word " tests/words.txt | sed 's/ /: use /')"; broken=1; }
done
grep -rnE --include='*.[ch]' '/\*+ ?(Of|What|Whether|Whose) ' runtime/plan && { echo "^ begin with the subject, or the verb"; broken=1; }

# What ARCHITECTURE.md and CONTRIBUTING.md name is there.
for name in $(grep -ohE '`[a-z_/]+\.(c|h|y|def|sh)`' ARCHITECTURE.md CONTRIBUTING.md | tr -d '`' | sort -u); do
  [ -e "$name" ] || [ -n "$(find runtime -path "*/$name")" ] || { echo "^ $name is named, and not there"; broken=1; }
done

[ $broken -eq 0 ] || fail "the lines above"
