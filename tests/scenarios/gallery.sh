# docs/gallery.md is what docs/gallery.sh makes of the examples today: names, parameters, what writes and what reads weights, and the
# figures of the comments in examples/published.zug, which recipes_good.sh compares with plans.
. "$ZUG_SRC/tests/scenarios/lib.sh"
command -v zplan >/dev/null || exit 77

ok sh "$ZUG_SRC/docs/gallery.sh" page
diff -u "$ZUG_SRC/docs/gallery.md" out.txt || fail "docs/gallery.md is out of date: make docs-gallery"
[ "$(grep -c '^| \[' out.txt)" -eq "$(sh "$ZUG_SRC/docs/gallery.sh" marks | wc -l)" ] || fail "a recipe without a row"
