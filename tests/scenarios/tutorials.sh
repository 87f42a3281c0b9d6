# The tutorials, as readme.sh has the README: each leads from an empty folder to what it shows.
. "$ZUG_SRC/tests/scenarios/lib.sh"
. "$ZUG_SRC/tests/scenarios/lib_readers.sh"

for page in "$ZUG_SRC"/docs/tutorials/*.md; do
  name=$(basename "$page" .md)
  follow "$name" 4 "docs/tutorials/$name.md"
done
exit 0
