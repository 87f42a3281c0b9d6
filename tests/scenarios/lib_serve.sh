# A server for scenarios. Read with: . "$ZUG_SRC/tests/scenarios/lib_serve.sh"

# serving COMMAND...: starts it, on any port; $pid and $port are its, server.txt has what it says. It ends with this script.
# False: this build has no HTTP server.
serving() {
  : >server.txt
  "$@" --port 0 2>server.txt &
  pid=$!
  trap 'kill -9 $pid 2>/dev/null' EXIT
  for i in $(seq 200); do
    port=$(sed -n 's,.* at http://[^ ]*:\([0-9]*\);.*,\1,p' server.txt)
    [ -n "$port" ] && return
    kill -0 $pid 2>/dev/null || break
    sleep 0.05
  done
  grep -q 'has no HTTP server' server.txt && return 1 # built without libmicrohttpd
  cat server.txt
  fail "the server does not begin"
}
