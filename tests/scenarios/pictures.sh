# The pictures of the documents: small, complete in themselves, in light and in dark; and the timeline is what zplan draws now.
. "$ZUG_SRC/tests/scenarios/lib.sh"

for picture in timeline losses; do
  file=$ZUG_SRC/docs/images/$picture.svg
  [ -s "$file" ] && [ "$(wc -c <"$file")" -lt 60000 ] || fail "$picture.svg is empty or too large"
  grep -q 'prefers-color-scheme: *dark' "$file" || fail "$picture.svg has no colours for the dark"
  ! grep -Eiq '<script|href|<image|@import' "$file" || fail "$picture.svg loads something"
  if command -v xmllint >/dev/null; then ok xmllint --noout "$file"; fi
done
grep -q '>8 ranks<' "$ZUG_SRC/docs/images/losses.svg" && grep -q '>1 rank<' "$ZUG_SRC/docs/images/losses.svg" || fail "not both layouts"
ok sh "$ZUG_SRC/docs/images/draw.sh" drawn timeline
diff -u "$ZUG_SRC/docs/images/timeline.svg" drawn/timeline.svg >diff.txt ||
  { head -n 20 diff.txt; fail "zplan draws timeline.svg in another way: make docs-images, and look at it"; }
[ ! -e drawn/losses.svg ] || fail "it trains although nobody asked for it"
