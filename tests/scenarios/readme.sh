# Every command in the ```sh blocks of README.md and of the guides works as printed, in the order of the text, and prints the lines
# of the ```message blocks. The guides share a folder, which training.md begins. A push makes runs of twenty steps and more short;
# a night runs all as printed. ./bootstrap is left out: it installs packages, and its demo is longer than a test.
. "$ZUG_SRC/tests/scenarios/lib.sh"
. "$ZUG_SRC/tests/scenarios/lib_readers.sh"

command -v curl >/dev/null || { echo "no curl here"; exit 77; }
follow readme 4 README.md
guides=
for name in training recipes data hugging-face adapters fine-tuning generation serving evaluation long-runs performance clusters; do guides="$guides docs/guides/$name.md"; done
[ "$(ls "$ZUG_SRC"/docs/guides/*.md | wc -l)" -eq "$(echo $guides | wc -w)" ] || fail "a guide whose commands are not tried"
follow guides 30 $guides
exit 0
