# Do the tests see it when the source is wrong? run.sh WORK MUTATE ROOM N SEED MIN JOBS
#
# Changes the source of a room by one token, again and again (mutate.c says how), and runs the tests of the room
# (rooms.txt) until one fails. A change is
#   caught     a test fails, or does not end, or a unit test does with sanitizers
#   survived   all pass: a test is missing, or the change changes nothing
#   refused    the compiler says no: another is drawn
#   same       the compiler makes the same code of it: another is drawn
#   known      it is in known.txt, with the reason why it changes nothing: another is drawn
# N are judged, drawn at random by SEED; the same seed draws the same, and little else when a line was edited. The score
# is the share of caught ones in percent; exit code 0: at least MIN; 1: less; 2: something did not work.
#
# `make mutants ROOM=graph N=50 SEED=1` calls prepare.sh, which copies the source to WORK and records the commands of
# the compiler there; then this. For a change one file is compiled, the programs that hold it are linked again, and the
# tests that run one of these judge it, those first that have told most for their time (WORK/told). make takes MIN=92
# too, the score that is enough, and JOBS, how many are judged at a time (all cores).
#
# Survivors are left in WORK/survived, as known.txt has them. `make mutants ROOM=graph ONLY=FILE` judges the changes of
# such a FILE again, and no others: are they caught now?
# A make around it has flags and a job server that are not for those below.
unset MAKEFLAGS MFLAGS MAKELEVEL
work=$1 mutate=$2 room=$3 n=$4 seed=$5 min=$6 jobs=$7
mutants=$(cd "$(dirname "$0")" && pwd)
only=${ONLY:+$(realpath "$ONLY")}
tab='	'
. "$mutants/again.sh"
stop() {
  echo "mutants: $*" >&2
  exit 2
}
cd "$work" || exit 2
rooms=src/tests/mutants/rooms.txt
room=${room%/}
awk -v room="$room" '/^[^ #]/ { on = $1 == room } on && /^ / { $1 = $1; print }' $rooms >wanted
[ -s wanted ] || stop "no room '$room' in tests/mutants/rooms.txt; there are: $(grep '^[^ #]' $rooms | tr '\n' ' ')"
cp "$mutate" mutate
cp src/tests/mutants/known.txt known
sed -n 's/^MPIRUN = //p' build/Makefile >mpirun
rm -rf m verdicts expanded original linked
mkdir -p m verdicts expanded original linked/build linked/asan build-times asan-times told
told=told/$(echo "$room" | tr / _)
touch "$told" && ln -sf "$told" told_now

# ---- the room's tests, as they are: all must pass, and their times are known then ----
echo "mutants: building what judges $room"
made=$(tr ' ' '\n' <wanted | grep -v '\.sh$' | sort -u)
grep -v '^[^ ]*\.sh' wanted >wanted_units
# builds BUILD PROGRAM...
builds() (
  cd "$1" && shift && make -s Makefile >/dev/null &&
    # make itself says what is made before all else: in the Makefile it stands as variables.
    first=$(printf 'first:\n\t@echo $(BUILT_SOURCES)\n' | make -s --no-print-directory -f Makefile -f - first) &&
    { [ -z "$first" ] || make -s $first; } && make -s -j"$jobs" "$@"
) >build.log 2>&1
# time_tests BUILD, of the tests that it reads: MILLISECONDS LIMIT TEST PROGRAM... a line
time_tests() {
  cat >these
  # A test whose programs are no newer than its time passed with them.
  while read -r test programs; do
    time=$1-times/$(echo "$test" | tr / _)
    case $test in *.sh) script=src/$test ;; *) script=$1/$test ;; esac
    [ -e "$time" ] && [ "$time" -nt "$script" ] || time=
    for program in $programs; do
      [ -z "$time" ] || [ "$time" -nt "$1/$program" ] || time=
    done
    [ -n "$time" ] || echo "$test"
  done <these | xargs -P "$jobs" -I TEST sh "$mutants/time.sh" "$work" "$1" TEST || stop "a test fails without any change"
  while read -r test programs; do
    ms=$(cat "$1-times/$(echo "$test" | tr / _)") || stop "$test has no time"
    # Others run beside it: a hang is four times that, and 20 seconds.
    [ "$ms" = skipped ] || echo "$ms $((ms / 250 + 20)) $test $programs"
  done <these
}
builds build $made || { tail -n 20 build.log; stop "the copy does not build"; }
time_tests build <wanted >timed || exit 2
: >sanitized
if [ -e asan/Makefile ] && [ -s wanted_units ]; then
  builds asan $(cat wanted_units) || { tail -n 20 build.log; stop "the copy does not build with sanitizers"; }
  time_tests asan <wanted_units >sanitized || exit 2
  for program in $(cat wanted_units); do
    mkdir -p "linked/asan/${program%/*}" && ln -s "$work/asan/$program" "linked/asan/$program"
  done
fi

# ---- which objects are made of the room's files, and which programs hold them ----
# FILE is of instructions that this machine does not have: nothing here can judge it.
lacks() {
  case $1 in
    kernels/cpu/bgemm_avx512.c) ! grep -qw avx512_bf16 /proc/cpuinfo ;;
    kernels/cpu/bgemm_amx.c) ! grep -qw amx_bf16 /proc/cpuinfo ;;
    *) false ;;
  esac
}
commands=$work/build-commands
for program in $(cd "$commands" && find . -type f ! -name '*.o' ! -name '*.a'); do
  mkdir -p "linked/build/${program%/*}" && ln -s "$work/build/${program#./}" "linked/build/$program"
done
: >objects
: >holds
for file in $(cd src && find "$room" -name '*.c' | sort); do
  innermost=$(grep '^[^ #]' $rooms | while read -r other; do case $file in "$other"/*) echo "$other" ;; esac; done | sort | tail -n 1)
  [ "$innermost" = "$room" ] || continue
  lacks "$file" && echo "mutants: $file is left out: this machine cannot run it" && continue
  source=../src/$file # the whole path: src/tests/unit/$file is a test of it, which must not be changed
  for object in $(cd "$commands" && grep -rlxF --include='*.o' -- "$source" . | sed 's|^\./||'); do
    [ -e "build/$object" ] || continue
    libraries=$(cd "$commands" && grep -rlxF --include='*.a' -- "$object" . | sed 's|^\./||')
    held=no
    for program in $made; do
      for part in "$object" $libraries; do
        grep -qxF -- "$part" "$commands/$program" || continue
        printf '%s\t%s\t%s\n' "$program" "$object" "$part" >>holds
        held=yes
        break
      done
    done
    [ $held = no ] && continue
    printf '%s\t%s\t%s\n' "$file" "$object" "$source" >>objects
  done
done

# ---- the changes, in the order of the draw ----
: >changes
export CCACHE_DISABLE=1
for file in $(cut -f 1 objects | uniq); do
  mkdir -p "expanded/$(dirname "$file")"
  grep "^$file$tab" objects >these
  while IFS=$tab read -r _ object source; do
    (cd build && again "$object" "$work/expanded/$file" "$source" "$source" "-w -E -P") ||
      stop "$file cannot be compiled again"
  done <these
  ./mutate list "$seed" "$file" "src/$file" "expanded/$file" >>changes || exit 2
done
LC_ALL=C sort changes >drawn
if [ -n "$only" ]; then
  cp drawn all
  awk -F "$tab" -v f="$only" 'BEGIN { while ((getline line <f) > 0) only[line] } ($2 ": " $5) in only' all >drawn
  n=$(wc -l <drawn)
fi
total=$(wc -l <drawn)
echo "mutants: $total changes of $(cut -f 1 objects | sort -u | wc -l) files; judged by:" $(cut -d ' ' -f 3 timed)

# ---- judge as many as still count too few ----
from=1 counted=0
while [ "$counted" -lt "$n" ] && [ "$from" -le "$total" ]; do
  to=$((from + n - counted - 1))
  [ $to -gt "$total" ] && to=$total
  seq $from $to | xargs -n 1 -P "$jobs" sh "$mutants/judge.sh" "$work" || stop "judge.sh failed"
  counted=$(cat verdicts/* | grep -cE '^(caught|survived)')
  from=$((to + 1))
done
cat verdicts/* | grep '^broken' && stop "the lines above"

count() { cat verdicts/* | grep -c "^$1"; }
caught=$(count caught)
awk -F "$tab" '$1 == "survived" { sub(/:[0-9]*$/, "", $2); print $2 ": " $3 }' verdicts/* >survived
[ "$counted" -gt 0 ] || stop "nothing to change in $room"
score=$((100 * caught / counted))
echo "mutants of $room, seed $seed: $caught of $counted caught, $score %" \
  "(not counted: $(count refused) refused, $(count same) the same code, $(count known) known to change nothing)"
if [ "$caught" -lt "$counted" ]; then
  echo "survived:"
  cat verdicts/* | sed -n 's/^survived//p' | sort -t "$tab" -k 2,2 -V | sed 's/^./  /; s/\t$//; s/\t/  /'
fi
[ $score -ge "$min" ]
