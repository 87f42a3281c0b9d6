# Every command in README.md's ```sh blocks works as printed, in the order of the text.
# ./bootstrap is left out: it installs packages, and its demo is longer than a test.
. "$ZUG_SRC/tests/scenarios/lib.sh"
need_mpi

ln -s "$ZUG_BUILD" build
ln -s "$ZUG_SRC/examples" "$ZUG_SRC/lang" "$ZUG_SRC/README.md" "$ZUG_SRC/LICENSE" "$ZUG_SRC/tests" .
awk '/^```sh$/ { on = 1; next } /^```$/ { on = 0 } on' README.md | grep -v '^\./bootstrap' >commands.sh
[ "$(grep -c '^[a-z]' commands.sh)" -ge 6 ] || fail "README.md lost its commands"

# The launcher as the other tests use it (MPIRUN holds more than a name), for programs that start it, too.
mkdir bin
printf '#!/bin/sh\nexec %s "$@"\n' "$(command -v "${MPIRUN%% *}") ${MPIRUN#* }" >bin/mpirun
chmod +x bin/mpirun
PATH=$PWD/bin:$PATH
set -ex
. ./commands.sh
