# Judges one change: judge.sh WORK NUMBER. The change is line NUMBER of WORK/drawn; run.sh left the rest. Prints a line
# if it counts, and leaves VERDICT <tab> PLACE <tab> CHANGE <tab> WHY in WORK/verdicts/NUMBER.
work=$1 number=$2
mutants=$(dirname "$0")
. "$mutants/again.sh"
tab='	'
IFS=$tab read -r key file change line text <<END_OF_LINE
$(sed -n "${number}p" "$work/drawn")
END_OF_LINE
room=$work/m/$number
mkdir -p "$room/src/$(dirname "$file")" || exit 99
export CCACHE_DISABLE=1

verdict() {
  printf '%s\t%s\t%s\t%s\n' "$1" "$file:$line" "$text" "$2" >"$work/verdicts/$number"
  case $1 in caught | survived) printf '%-8s  %s  %s%s\n' "$1" "$file:$line" "$text" "${2:+  ($2)}" ;; esac
  cd / && rm -rf "$room"
  exit 0
}

awk -F ': ' -v f="$file" -v t="$text" '$1 == f && substr($0, length(f) + 3) == t { found = 1 } END { exit !found }' \
  "$work/known" && verdict known
"$work/mutate" apply "$change" "$work/src/$file" "$work/expanded/$file" >"$room/src/$file" || exit 99
grep -F "$file$tab" "$work/objects" >"$room/objects"

# What follows is done in $build, `build` or `asan`, whose commands of the compiler are $commands; what is made of the
# change lies in $made, as the rest does there.
enter() {
  build=$1 commands=$work/$1-commands made=$room/$1
  mkdir -p "$made" && cp -a "$work/linked/$build/." "$made" && : >"$made/same" && cd "$work/$build" || exit 99
}
compile() { # OBJECT SOURCE
  mkdir -p "$made/$(dirname "$1")"
  again "$1" "$made/$1" "$2" "$room/src/$file" "-w -O2 -g0 -fmacro-prefix-map=$room/src/=" >"$room/refused" 2>&1
}

# Compiled as the original was: the same code is no change.
enter build
same=yes
while IFS=$tab read -r _ object source; do
  compile "$object" "$source" || verdict refused "$(grep -m 1 error: "$room/refused")"
  mkdir -p "$work/original/$(dirname "$object")"
  [ -e "$work/original/$object" ] || # another may be at it, too
    { again "$object" "$room/original.o" "$source" "$source" "-w -O2 -g0" &&
      mv "$room/original.o" "$work/original/$object"; } ||
    verdict broken "$object cannot be compiled again"
  cmp -s "$made/$object" "$work/original/$object" || same=no
done <"$room/objects"
[ $same = yes ] && verdict same

# The programs that hold it, or whose library does, beside those that do not: these are links to the others, and so is
# one that takes nothing of it out of the library.
link() {
  [ -e "$made/$1" ] && [ ! -L "$made/$1" ] && return
  grep -qxF -- "$1" "$made/same" && return
  while IFS=$tab read -r _ object source; do
    part=$(awk -F "$tab" -v p="$1" -v o="$object" '$1 == p && $2 == o { print $3 }' "$work/holds")
    [ -n "$part" ] || continue
    rm -f "$made/$1"
    [ -e "$made/$object" ] || compile "$object" "$source" &&
      { [ -e "$made/$part" ] || again "$part" "$made/$part" "$object" "$made/$object" "" >"$room/refused" 2>&1; } &&
      again "$1" "$made/$1" "$part" "$made/$part" "" >"$room/refused" 2>&1 || {
      cat "$room/refused" >&2
      verdict broken "$1 cannot be linked"
    }
    cmp -s "$made/$1" "$work/$build/$1" || return
    ln -sf "$work/$build/$1" "$made/$1"
  done <"$room/objects"
  echo "$1" >>"$made/same"
}

# Ends with the verdict `caught` when a test that is read fails: MILLISECONDS LIMIT TEST PROGRAM... a line.
judge() {
  while read -r _ limit test programs; do
    holds=no
    for program in $programs $(echo "$test" | grep -v '\.sh$'); do
      link "$program"
      [ -L "$made/$program" ] || holds=yes
    done
    [ $holds = yes ] || continue
    fails() { ! why=$(sh "$mutants/test.sh" "$work" "$build" "$made" "$limit" "$test"); }
    # Where others run beside it what is slow may be waited for in vain, once.
    fails && case $why in *hangs | *'exit code 124'*) fails ;; esac && {
      [ $build = asan ] && verdict caught "with sanitizers: $why"
      echo "$test caught" >>"$work/told_now"
      verdict caught "$why"
    }
    [ $build = asan ] || echo "$test passed" >>"$work/told_now"
  done
}

# Those first that have caught most changes of this room for their time.
awk 'NF == 2 { ran[$1]++; if ($2 == "caught") caught[$1]++; next }
  { print int($1 * (ran[$3] + 2) / (caught[$3] + 1)) "\t" $0 }' "$work/told_now" "$work/timed" |
  sort -n | cut -f 2 >"$room/order"
judge <"$room/order"

# A line that may only cost time: known.txt has its beginning, and dots.
original=$(sed -n "${line}{s/^[[:blank:]]*//;p;}" "$work/src/$file")
grep '^[^ #].*\.\.\.$' "$work/known" >"$room/beginnings"
while IFS= read -r entry; do
  begins=${entry#*: }
  case $file in ${entry%%: *}) case $original in "${begins%...}"*) verdict known ;; esac ;; esac
done <"$room/beginnings"

# What no test sees a sanitizer may: a byte behind the end, memory that is not given back.
if [ -s "$work/sanitized" ]; then
  enter asan
  judge <"$work/sanitized"
fi
verdict survived
