# Judges one change: judge.sh WORK NUMBER. The change is line NUMBER of WORK/drawn; run.sh left the rest. Prints a line
# if it counts, and leaves VERDICT <tab> PLACE <tab> CHANGE <tab> WHY in WORK/verdicts/NUMBER.
work=$1 number=$2
commands=$work/commands
mutants=$(dirname "$0")
cd "$work/build" || exit 99
. "$mutants/again.sh"
tab='	'
IFS=$tab read -r key file change line text <<END_OF_LINE
$(sed -n "${number}p" "$work/drawn")
END_OF_LINE
room=$work/m/$number
mkdir -p "$room/src/$(dirname "$file")"
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

# Compiled as the original was: the same code is no change.
same=yes
grep -F "$file$tab" "$work/objects" >"$room/objects"
while IFS=$tab read -r _ object source; do
  mkdir -p "$room/$(dirname "$object")"
  again "$object" "$room/$object" "$source" "$room/src/$file" "-w -O2 -g0 -fmacro-prefix-map=$room/src/=" \
    >"$room/refused" 2>&1 || verdict refused "$(grep -m 1 error: "$room/refused")"
  cmp -s "$room/$object" "$work/original/$object" || same=no
done <"$room/objects"
[ $same = yes ] && verdict same

# The programs that hold it, or whose library does, beside those that do not.
link() {
  [ -e "$room/$1" ] && [ ! -L "$room/$1" ] && return
  mkdir -p "$room/$(dirname "$1")"
  while IFS=$tab read -r _ object _; do
    part=$(awk -F "$tab" -v p="$1" -v o="$object" '$1 == p && $2 == o { print $3 }' "$work/holds")
    [ -n "$part" ] || continue
    rm -f "$room/$1"
    [ -e "$room/$part" ] || again "$part" "$room/$part" "$object" "$room/$object" "" >"$room/refused" 2>&1 &&
      again "$1" "$room/$1" "$part" "$room/$part" "" >"$room/refused" 2>&1 || {
      cat "$room/refused" >&2
      verdict broken "$1 cannot be linked"
    }
    return
  done <"$room/objects"
  ln -sf "$work/build/$1" "$room/$1"
}

while read -r limit test programs; do
  case $test in
  *.sh)
    for program in $programs; do link "$program"; done
    for program in $(cat "$work/programs"); do
      mkdir -p "$room/$(dirname "$program")"
      [ -e "$room/$program" ] || ln -s "$work/build/$program" "$room/$program"
    done ;;
  *) link "$test" && [ -L "$room/$test" ] && continue ;; # does not hold it
  esac
  why=$(sh "$mutants/test.sh" "$work" "$room" "$limit" "$test") || verdict caught "$why"
done <"$work/tests"

# A line that may only cost time: known.txt has its beginning, and dots.
original=$(sed -n "${line}{s/^[[:blank:]]*//;p;}" "$work/src/$file")
grep '^[^ #].*\.\.\.$' "$work/known" >"$room/beginnings"
while IFS= read -r entry; do
  begins=${entry#*: }
  case $file in ${entry%%: *}) case $original in "${begins%...}"*) verdict known ;; esac ;; esac
done <"$room/beginnings"
verdict survived
