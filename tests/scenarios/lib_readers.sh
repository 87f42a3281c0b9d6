# Helpers of readme.sh and tutorials.sh, which do what documents say. Read with: . "$ZUG_SRC/tests/scenarios/lib_readers.sh"
need_mpi

# The launcher as the other tests use it (MPIRUN holds more than a name), for programs that start it, too.
mkdir bin
printf '#!/bin/sh\nexec %s "$@"\n' "$(command -v "${MPIRUN%% *}") ${MPIRUN#* }" >bin/mpirun
chmod +x bin/mpirun
PATH=$PWD/bin:$PATH
top=$PWD

blocks() { # KIND DOCUMENT...: the lines of such blocks
  kind=$1
  shift
  awk -v from="\`\`\`$kind" '$0 == from { on = 1; next } /^```$/ { on = 0 } on' "$@"
}
follow() { # FOLDER COMMANDS DOCUMENT...: runs what they say there; there are at least so many commands
  folder=$1 least=$2
  shift 2
  mkdir "$top/$folder" && cd "$top/$folder" || exit 99
  ln -s "$ZUG_BUILD" build
  for name in README.md LICENSE docs examples lang tests; do ln -s "$ZUG_SRC/$name" .; done
  (cd "$ZUG_SRC" && blocks sh "$@") | grep -v '^\./bootstrap' >commands.sh
  [ "$(grep -c '^[a-z]' commands.sh)" -ge "$least" ] || fail "$* lost their commands"
  at_night || sed -i -E 's/--steps [1-9]00( |$)/--steps 10\1/; s/--steps 20( |$)/--steps 5\1/' commands.sh
  echo "==== $*"
  start=$(date +%s)
  sh -ex commands.sh >said.txt 2>&1 || { cat said.txt; fail "a command of $*"; }
  cat said.txt
  echo "==== $(($(date +%s) - start)) s"
  (cd "$ZUG_SRC" && blocks message "$@") >wanted.txt
  while read -r line; do
    [ -z "$line" ] || grep -qF -- "$line" said.txt || fail "$*: nothing printed '$line'"
  done <wanted.txt
}
