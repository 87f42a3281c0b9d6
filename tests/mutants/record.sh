# Runs a compiler or an archiver and keeps its command line: record.sh FOLDER COMMAND... An argument a line, in
# FOLDER/OUTPUT, where OUTPUT is what it makes. judge.sh runs such commands again.
folder=$1
shift
output='' last=''
for word; do
  [ "$last" = -o ] && output=$word
  last=$word
done
case $2 in cr*) output=$3 ;; esac
case $output in
'' | /* | *conftest* | *.exe | a.out) ;;
*/*) mkdir -p "$folder/${output%/*}" && printf '%s\n' "$@" >"$folder/$output" ;;
*) mkdir -p "$folder" && printf '%s\n' "$@" >"$folder/$output" ;;
esac
exec "$@"
