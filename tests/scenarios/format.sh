# Lines are as .clang-format says. Versions of clang-format disagree about details, so one is asked: 14, as Debian 12 has it.
# `make format-check` runs this; `make format` (format.sh format) lets clang-format change what it would.
cd "$ZUG_SRC" || exit 99
for tool in clang-format-14 clang-format ''; do
  $tool --version 2>/dev/null | grep -q 'version 14\.' && break
done
[ -n "$tool" ] || { echo "SKIP: no clang-format 14 here"; exit 77; }
files=$(find base graph lang compiler kernels runtime tests bench -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' -o -name '*.cc')
[ "${1-}" = format ] && exec $tool --style=file -i $files
changed=0
for file in $($tool --style=file --dry-run $files 2>&1 | sed -n 's/^\([^:]*\):.*Wclang-format-violations.*/\1/p' | sort -u); do
  $tool --style=file "$file" | diff -u "$file" - || changed=$((changed + 1))
done
# What it does to comments that are too long: their end on a line of its own, a type without its name.
grep -nE '^ *\* \*/|^ +(const )?(u?int[0-9]+_t|bool|char|float|double|size_t|Z[A-Za-z]+)$' $files && {
  echo "^ put the comment above, or break its lines by hand"
  changed=$((changed + 1))
}
[ $changed -eq 0 ] || { echo "FAILED: $changed files are not as .clang-format says; make format repairs them"; exit 1; }
