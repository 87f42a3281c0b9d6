# Copies the source and builds nothing yet: prepare.sh SOURCE WORK CC. WORK/src is a copy, WORK/build is configured for
# quick tests (-O1, no sanitizers, no CUDA) and records the commands of the compiler in WORK/build-commands; WORK/asan is
# the same with sanitizers. What is there already stays, so that a second run builds only what was edited.
source=$1 work=$2 cc=$3
mkdir -p "$work" && cd "$work" && work=$(pwd) || exit 2
rm -rf src new && mkdir new || exit 2
for part in "$source"/* "$source/.clang-format"; do
  [ -e "$part/config.status" ] || cp -pR "$part" new/ || exit 2
done
# What differs from the last copy is new now, whenever it was saved: its object may have been made since.
if [ -d src ]; then
  : >stamp
  diff -rq src new | sed -n 's|^Files .* and \(new/.*\) differ$|\1|p' | while read -r file; do touch -r stamp "$file"; done
fi
rm -rf src && mv new src && cp src/tests/mutants/record.sh . || exit 2
# configure_in BUILD OPTION...
configure_in() {
  build=$1
  shift
  [ -e "$build/config.status" ] && return
  echo "mutants: configuring a copy in $work/$build"
  record="sh $work/record.sh $work/$build-commands"
  mkdir -p "$build" "$build-commands" && (cd "$build" &&
    ../src/configure -q --with-cuda=no CFLAGS=-O1 CC="$record $cc" AR="$record ar" "$@" >configure.log 2>&1) && return
  tail -n 5 "$build/configure.log"
  echo "mutants: the copy cannot be configured" >&2
  exit 2
}
configure_in build
configure_in asan --enable-sanitize
