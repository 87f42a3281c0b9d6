# Lines are as .clang-format says. Versions of clang-format disagree about details, so one is asked: 14, as Debian 12 has it.
# `make format-check` runs this; `make format` (format.sh format) lets clang-format change what it would.
cd "$ZUG_SRC" || exit 99
for tool in clang-format-14 clang-format ''; do
  $tool --version 2>/dev/null | grep -q 'version 14\.' && break
done
[ -n "$tool" ] || { echo "SKIP: no clang-format 14 here"; exit 77; }
files=$(find base graph lang compiler kernels runtime tests -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' -o -name '*.cc')
[ "${1-}" = format ] && exec $tool --style=file -i $files
changed=0
for file in $files; do
  $tool --style=file "$file" | diff -u "$file" - || changed=$((changed + 1))
done
[ $changed -eq 0 ] || { echo "FAILED: $changed files are not as .clang-format says; make format repairs them"; exit 1; }
