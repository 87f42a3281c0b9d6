# Completion offers the options that a program takes, all of them and no other's, and the commands that it has.
. "$ZUG_SRC/tests/scenarios/lib.sh"
programs=$(cd "$ZUG_BUILD" && ls -d zc zplan zrun zdata zckpt zkeep zlog 2>/dev/null)
for p in $programs; do
  $p --complete | sort -u >$p.words
  grep -e '^--[a-z]' $p.words >$p.offered || fail "no options of $p"
done

# ---- man pages: all sections; each option of an example is one of the program, or of zrun, which others may name ----
for p in $programs; do
  $p --man-page >$p.1
  for section in NAME SYNOPSIS OPTIONS 'EXIT STATUS' EXAMPLES FILES; do
    [ "$(grep -cx ".SH $section" $p.1)" -eq 1 ] || fail "$p.1 has no section $section, or two"
  done
  sed -n '/^.SH EXAMPLES/,/^.SH FILES/s/^.fB\(.*\).fR$/\1/p' $p.1 | sed 's/\\-/-/g' >examples.txt
  [ -s examples.txt ] || fail "$p.1 has no examples"
  for option in $(grep -oE -- ' --?[a-zA-Z][a-z-]*' examples.txt); do
    case $option in -np) continue ;; esac
    { $p --help; zrun --help; } | grep -qE -- "(^|[ ,])$option\b" || fail "$p.1 has an example with $option, which is none"
  done
done

# ---- the pages of the reference are these man pages ----
for p in $programs; do
  awk -f "$ZUG_SRC/docs/reference/page.awk" $p.1 >$p.md
  diff -u "$ZUG_SRC/docs/reference/$p.md" $p.md || fail "docs/reference/$p.md is not what $p says now: make docs-reference"
done

# ---- who takes what the programs say themselves: one that does not know an option says so before anything else ----
sort -u ./*.offered >all.txt
[ "$(wc -l <all.txt)" -gt 60 ] || fail "only $(wc -l <all.txt) options"
for p in $programs; do
  case $p in zdata) command=pack ;; zckpt) command=show ;; zlog) command=tail ;; zplan) command=show ;; zrun) command=train ;; *) command= ;; esac
  for option in --foo $(cat all.txt); do
    echo "@$option"
    if [ "$option" = --version ]; then $p --version; else $p $command "$option"; fi 2>&1
  done </dev/null >said.txt
  awk '/^@--/ { option = substr($0, 2); print option; next } /(unrecognized|unknown) option|is ambiguous/ { print option }' said.txt |
    sort | uniq -u >$p.takes
  # what getopt takes for the beginning of another is none
  while read -r option; do
    case $(tr '\n' ' ' <$p.offered) in *"$option "*) echo "$option" ;; *"$option"*) ;; *) echo "$option" ;; esac
  done <$p.takes >$p.own
  diff $p.own $p.offered || fail "$p takes < and is offered >"
done

# ---- versions: a line that a report of a fault begins with ----
for p in $programs; do
  ok $p --version
  [ "$(wc -l <out.txt)" -eq 1 ] && says "^$p \\(zug\\) [0-9]+\\.[0-9]" || fail "the version of $p"
done
[ "$(for p in $programs; do $p --version | sed 's/.* //'; done | sort -u | wc -l)" -eq 1 ] || fail "several versions"

# ---- commands ----
has() { # PROGRAM COMMAND...
  p=$1
  shift
  [ "$(grep -v -- '^-' $p.words | tr '\n' ' ')" = "$* " ] || fail "commands of $p: $(grep -v -- '^-' $p.words | tr '\n' ' ')"
}
has zc dump fmt
has zdata check decode import pack records show table tokenizer
has zlog compare plot tail
has zckpt diff export list show verify weights

# ---- what a command has, and the words of an option ----
offers() { # WANTED PROGRAM WORD...: what may follow these words
  wanted=$1 p=$2
  shift 2
  [ "$($p --complete "$@" | tr '\n' ' ')" = "$wanted" ] || { $p --complete "$@"; fail "other words after $p $*"; }
}
offers '--lines --once --help ' zlog tail a
offers 'f32 bf16 f16 ' zckpt export a --dtype
offers '' zlog plot a -o # a file

# ---- in bash ----
command -v bash >/dev/null || { echo "no bash"; exit 0; }
bash -c '. "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _zug "$1"; printf "%s\n" "${COMPREPLY[@]}"' \
  "$ZUG_SRC/share/complete.bash" zlog tail a -- >bash.txt
[ "$(tr '\n' ' ' <bash.txt)" = '--lines --once --help ' ] || { cat bash.txt; fail "bash offers others"; }
command -v zsh >/dev/null || exit 0
ok zsh -n "$ZUG_SRC/share/complete.zsh"
