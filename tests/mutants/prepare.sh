# Copies the source and builds nothing yet: prepare.sh SOURCE WORK CC. WORK/src is a copy, WORK/build is configured for
# quick tests (-O1, no sanitizers, no CUDA) and records the commands of the compiler in WORK/commands. What is there
# already stays, so that a second run builds only what was edited.
source=$1 work=$2 cc=$3
mkdir -p "$work/build" "$work/commands" && cd "$work" && work=$(pwd) || exit 2
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
[ -e build/config.status ] && exit 0
echo "mutants: configuring a copy in $work"
cd build && ../src/configure -q --with-cuda=no CFLAGS=-O1 CC="sh $work/record.sh $work/commands $cc" \
  AR="sh $work/record.sh $work/commands ar" >configure.log 2>&1 && exit 0
tail -n 5 configure.log
echo "mutants: the copy cannot be configured" >&2
exit 2
