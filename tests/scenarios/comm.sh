# The communicator on several ranks: its contract, a rank that ends the job, and a rank that is killed.
. "$ZUG_SRC/tests/scenarios/lib.sh"
[ -n "$MPIRUN" ] && [ -x "$ZUG_BUILD/tests/scenarios/tools/comm" ] || {
  echo "no MPI here"
  exit 77
}
export ASAN_OPTIONS="$ASAN_OPTIONS:detect_leaks=0" # MPI's own are many
comm=$ZUG_BUILD/tests/scenarios/tools/comm

ok "$comm" self
for np in 3 $(at_night && echo 1 2 4 8); do ok $MPIRUN -np $np "$comm"; done
# ... and with ranks in another order than MPI's, on one node and on two
ok $MPIRUN -np 3 "$comm" reordered
ok $MPIRUN -np 4 "$comm" reordered nodes

$MPIRUN -np 3 "$comm" abort 7 >out.txt 2>&1
[ $? -eq 7 ] || fail "the code of the rank that ends the job is lost"

$MPIRUN -np 3 "$comm" hang >out.txt 2>&1 &
job=$!
tries=0
until [ -e pid-1 ] && [ -s pid-1 ]; do
  sleep 0.1
  tries=$((tries + 1))
  [ $tries -lt 300 ] || fail "the ranks do not start"
done
kill -KILL "$(cat pid-1)"
start=$(date +%s)
wait $job && fail "a killed rank is no success"
[ $(($(date +%s) - start)) -le 15 ] || fail "the job outlives its rank"
says_broken 'process rank 1 .*exited on signal 9'
