# `make install` into a folder: programs that run from there, a man page and completion for each, examples; and
# `make uninstall` takes all of it away.
. "$ZUG_SRC/tests/scenarios/lib.sh"
unset MAKEFLAGS MFLAGS MAKELEVEL
root=$(pwd)/root
makes() { ok make -s -C "$ZUG_BUILD" "$1" DESTDIR="$root" prefix=/usr; }
makes install
programs=$(cd "$root/usr/bin" && ls)
[ "$(echo $programs)" = "$(cd "$ZUG_BUILD" && ls -d $programs | tr '\n' ' ' | sed 's/ $//')" ] || fail "other programs: $programs"
for p in zc zplan zdata zckpt zkeep zlog; do
  [ -x "$root/usr/bin/$p" ] || fail "no $p"
done

# ---- man pages ----
for p in $programs; do
  page=$root/usr/share/man/man1/$p.1
  "$root/usr/bin/$p" --help >help.txt || fail "$p --help"
  [ -s help.txt ] && [ -s "$page" ] || fail "no man page of $p"
  grep -q "^$p .- [a-z]" "$page" || fail "$p.1 does not say what $p is for"
  grep -qx '.SH SEE ALSO' "$page" || fail "$p.1 names no other program"
  # Every option, with nothing taken for a command of the formatter.
  sed 's/\\-/-/g' "$page" >plain.txt
  for option in $("$root/usr/bin/$p" --complete | grep '^-' | grep -v -e '--help' -e '--version'); do
    grep -q "^.fB.*$option" plain.txt || fail "$p.1 does not have $option"
  done
  command -v groff >/dev/null || continue
  groff -ww -man -Tascii "$page" >page.txt 2>warnings.txt && [ ! -s warnings.txt ] || { cat warnings.txt; fail "$p.1 is not well-formed"; }
done

# ---- documents: all that a user looks up, and every one that a program names ----
docs=$root/usr/share/doc/zug
for file in lang/REFERENCE lang/ERRORS graph/OPS graph/FORMAT runtime/exec/data/DATA runtime/plan/output/JSON README NEWS; do
  [ -s "$docs/$file.md" ] || fail "no $file.md"
done
cmp "$docs/lang/REFERENCE.md" "$ZUG_SRC/lang/REFERENCE.md" && cmp "$docs/lang/ERRORS.md" "$ZUG_SRC/lang/ERRORS.md" || fail "other documents"
for p in $programs; do
  for file in $("$root/usr/bin/$p" --help | grep -oE '[A-Za-z_/]+\.md'); do
    [ -s "$docs/$file" ] || fail "$p names $file, which is not installed"
  done
done
for page in $(cd "$ZUG_SRC" && find docs -name '*.md' -o -name '*.svg'); do
  [ -s "$docs/$page" ] || fail "$page is not installed: docs/local.mk lists the pages"
done
for page in $(cd "$docs" && find . -name '*.md'); do # links to other documents (tests/scenarios/links.sh: all, in the sources)
  for to in $(grep -oE '\]\([^) #:]+\.md' "$docs/$page" | sed 's/^](//'); do
    [ -s "$docs/$(dirname "$page")/$to" ] || fail "$page links to $to, which is not installed"
  done
done
grep -q 'share/doc/zug' "$docs/docs/developers/build.md" || fail "no page says where documents are"

# ---- completion ----
# completes WORD... : the lines of what bash offers for the last word
completes() {
  bash -c '. "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _zug "$1"; printf "%s\n" "${COMPREPLY[@]}"' \
    "$root/usr/share/bash-completion/completions/$1" "$@"
}
offers() { # WANTED WORD...
  wanted=$1
  shift
  completes "$@" >offered.txt
  [ "$(tr '\n' ' ' <offered.txt)" = "$wanted " ] || { cat offered.txt; fail "for '$*' wanted $wanted"; }
}
if command -v bash >/dev/null; then
  PATH=$root/usr/bin:$PATH
  offers '--tokenizer --tokens' zdata pack x --tok
  offers 'show sim search' zplan s
  offers 'verify' zckpt ver
  offers 'plot' zlog p
  offers 'dump' zc d
  offers '' zckpt verify ver # files
fi
[ -s "$root/usr/share/zsh/site-functions/_zug" ] || fail "no completion for zsh"

# ---- editors: every word of the scanner, as a word of the language ----
editors=$root/usr/share/zug/editors
for word in model param repeat if weights recompute stages optimizer; do
  grep -q "^syn keyword zugKeyword.* $word " "$editors/vim/syntax/zug.vim" || fail "Vim does not know $word"
  grep -q "keyword.control.*[(|]$word[|)]" "$editors/vscode/zug.tmLanguage.json" || fail "VS Code does not know $word"
done
for word in real bf16 index; do
  grep -q "^syn keyword zugType .*\b$word\b" "$editors/vim/syntax/zug.vim" || fail "Vim does not know $word"
done
[ "$(grep -c '^syn keyword' "$editors/vim/syntax/zug.vim")" -eq 3 ] && [ -s "$editors/vim/ftdetect/zug.vim" ] || fail "Vim's files"
if command -v python3 >/dev/null; then
  for f in "$editors"/vscode/*.json; do ok python3 -m json.tool "$f"; done
fi

# ---- what is there runs from there ----
examples=$root/usr/share/zug/examples
ok "$root/usr/bin/zc" "$examples/gpt2.zug" -o gpt2.zsg -D words=256
ok "$root/usr/bin/zplan" check gpt2.zsg --recipe "$examples/recipes.zug:demo"
[ -s "$root/usr/share/zug/stdlib/std/nn.zug" ] || fail "no library to read"

makes uninstall
[ -z "$(find root ! -type d)" ] || { find root ! -type d; fail "make uninstall leaves these"; }
exit 0
