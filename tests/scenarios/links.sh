# Documents: what they link to is there, with its heading; every page of docs/ can be reached from README.md; the README is two
# screens long.
. "$ZUG_SRC/tests/scenarios/lib.sh"
cd "$ZUG_SRC" || exit 99
documents="*.md docs/*.md docs/*/*.md lang/*.md graph/*.md bench/*.md tests/*.md tests/*/*/README.md runtime/*/*.md runtime/*/*/*.md"
out=$(mktemp) && links=$(mktemp) || exit 99
trap 'rm -f "$out" "$links"' EXIT

anchors() { # DOCUMENT: what GitHub calls its headings
  awk '/^```/ { on = !on } !on && /^#+ / { sub(/^#+ /, ""); print tolower($0) }' "$1" | sed 's/[^a-z0-9 _-]//g; s/ /-/g'
}
# Lines "FROM TO": links of the text, without code.
awk 'FNR == 1 { on = 0 } /^```/ { on = !on } !on && !/^    / {
  gsub(/`[^`]*`/, "")
  while (match($0, /\]\([^) ]+\)/)) {
    print FILENAME, substr($0, RSTART + 2, RLENGTH - 3)
    $0 = substr($0, RSTART + RLENGTH)
  }
}' $documents >"$links"
[ "$(wc -l <"$links")" -ge 60 ] || fail "links are not seen"
while read -r from to; do
  case $to in http*) continue ;; *[./#]*) ;; *) continue ;; esac # f[axis](x) is not a link
  file=${to%%#*}
  if [ -z "$file" ]; then file=$from; else file=$(dirname "$from")/$file; fi
  [ -e "$file" ] || { echo "$from links to $to, which is not there"; continue; }
  case $to in *'#'*) anchors "$file" | grep -qxF -- "${to#*#}" || echo "$from links to $to, which has no such heading" ;; esac
done <"$links" >"$out"
[ ! -s "$out" ] || { cat "$out"; fail "links"; }

# Pages, from README.md on.
reached=README.md
for _ in 1 2 3 4; do
  reached=$(for page in $reached; do
    echo "$page"
    awk -v page="$page" '$1 == page { print $2 }' "$links" | grep -v '^http\|^#' | sed 's/#.*//' | while read -r to; do
      realpath -m --relative-to=. "$(dirname "$page")/$to"
    done
  done | grep '\.md$' | sort -u)
done
for page in docs/*.md docs/*/*.md; do
  echo "$reached" | grep -qxF "$page" || fail "no way leads from README.md to $page"
done
[ "$(wc -l <README.md)" -le 120 ] || fail "README.md has more than 120 lines"
exit 0
