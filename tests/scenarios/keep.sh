# zkeep with false programs: crashes, codes, checkpoints that come and do not come, signals, what is left of a command.
. "$ZUG_SRC/tests/scenarios/lib.sh"

# A run: each start takes a line of `plan`, "CODE [STEP]": it makes the checkpoint of that step, if any, and ends so.
cat >run <<'END'
#!/bin/sh
echo start >>starts
set -- $(sed -n "$(wc -l <starts)p" plan)
[ "$2" ] && mkdir -p "ckpt/step-$2"
case $1 in
KILL) kill -KILL $$ ;;
*) exit "${1:-1}" ;;
esac
END
chmod +x run
# keeps CODE STARTS PLAN OPTION...: zkeep must end with that code after so many starts
keeps() {
  code=$1 starts=$2
  printf "$3" >plan
  shift 3
  rm -rf starts ckpt
  timeout -k 5 60 zkeep --wait 1s --wait-most 1s "$@" -- ./run --ckpt ckpt >out.txt 2>&1
  got=$?
  [ $got -eq "$code" ] || { cat out.txt; fail "code $got, wanted $code"; }
  [ "$(wc -l <starts)" -eq "$starts" ] || { cat out.txt; fail "$(wc -l <starts) starts, wanted $starts"; }
}

# ---- codes ----
[ ! -w /dev/full ] || breaks 'cannot write to the standard output' sh -c 'zkeep --help >/dev/full'
keeps 0 1 '0\n'
says '^zkeep 20[0-9-]* [0-9:]*: start 1: ./run --ckpt ckpt$'
says '^zkeep 20[0-9-]* [0-9:]*: done'
echo word >word
printf '#!/bin/sh\n! read -r word\n' >reads && chmod +x reads
ok sh -c 'exec zkeep --restarts 0 -- ./reads <word' # a terminal would stop a command in the background that reads
printf '#!/bin/sh\nls /proc/$$/fd\n' >opened && chmod +x opened
[ "$(./opened <word)" = "$(zkeep -- ./opened 2>err.txt)" ] || { zkeep -- ./opened; fail "a command begins with other files"; }
keeps 0 4 '1\nKILL\n69\n0\n'
says 'the command exited with code 137 after 0s'
says 'restarting in 1s'
keeps 2 2 '1\n2\n'
says 'not restarted: it would fail the same way'
start=$(date +%s)
keeps 0 31 "$(for i in $(seq 30); do printf '75 %d\\n' "$i"; done)0\n" # it gets on: none is too many, and none is waited for
[ $(($(date +%s) - start)) -lt 20 ] || fail "runs that come again are waited for"
says 'the newest checkpoint is of step 30'

# ---- no progress ----
keeps 1 3 '1\n1\n1\n1\n1\n' --restarts 2
says '3 starts in a row without a new checkpoint in ckpt: giving up'
keeps 75 1 '75\n75\n' --restarts 0
keeps 1 6 '1\n1\n1 7\n1\n1 7\n1\n0\n' --restarts 2 # 7 a second time is not new
keeps 1 2 '1 40\n1 41\n1 42\n' --restarts 1 --progress elsewhere # where there are none
start=$(date +%s)
keeps 1 4 '1\n1\n1\n1\n1\n' --restarts 3 --wait 1s --wait-most 10s
[ $(($(date +%s) - start)) -ge 7 ] || fail "waits do not double" # 1, 2, 4

# ---- what is wrong ----
refuses 'give a command after --' zkeep
refuses 'cannot start ./none: No such file' zkeep -- ./none
refuses 'cannot start ./run: Too many open files' sh -c 'exec 3>&-; ulimit -n 4 && exec zkeep -- ./run'
refuses "--wait cannot be .x." zkeep --wait x -- ./run
refuses "--restarts cannot be .-1." zkeep --restarts -1 -- ./run
refuses "unrecognized option '--foo'" zkeep --foo -- ./run
ok zkeep --help
says '^usage: zkeep'

# ---- signals: the command is asked by SIGUSR1, and nothing of it stays ----
cat >slow <<'END'
#!/bin/bash
trap 'echo asked >>asked; [ "$1" = stops ] && exit 75' USR1
setsid sleep 1000 & # as a rank: in a group of its own
echo $! >left
while :; do sleep 0.1; done
END
chmod +x slow
# told SIGNAL HOW OPTION...: zkeep is told to end while the command runs; $code is its code
told() {
  signal=$1 how=$2
  shift 2
  rm -f asked left
  setsid zkeep "$@" -- ./slow "$how" >out.txt 2>&1 &
  job=$!
  tries=0
  until [ -s left ]; do
    sleep 0.1
    tries=$((tries + 1))
    [ $tries -lt 100 ] || fail "the command does not start"
  done
  kill -"$signal" $job
  start=$(date +%s)
  wait $job
  code=$? took=$(($(date +%s) - start))
  kill -0 "$(cat left)" 2>/dev/null && fail "$signal: something is left"
  [ "$(cat asked)" = asked ] || { cat out.txt; fail "$signal: the command is not asked once"; }
}
for signal in TERM USR1 HUP; do
  told $signal stops
  [ $code -eq 75 ] || { cat out.txt; fail "$signal: code $code"; }
  says 'the command exited with code 75'
done
told TERM stays --grace 2s
[ $code -eq 75 ] && [ $took -ge 2 ] && [ $took -le 10 ] || { cat out.txt; fail "code $code after $took s"; }
# Ctrl-C, which a job in the background does not hear of by default: a second one waits for nothing.
rm -f asked left
env --default-signal=INT setsid zkeep --grace 1h -- ./slow stays >out.txt 2>&1 &
job=$!
for file in left asked; do
  tries=0
  until [ -s $file ]; do
    sleep 0.1
    tries=$((tries + 1))
    [ $tries -lt 100 ] || { cat out.txt; fail "no $file of a command that is told by Ctrl-C"; }
  done
  kill -INT $job
done
wait $job
[ $? -eq 75 ] || { cat out.txt; fail "the code after Ctrl-C, twice"; }
kill -0 "$(cat left)" 2>/dev/null && fail "something is left after Ctrl-C, twice"
# Between two starts.
printf '1\n1\n' >plan
rm -rf starts
zkeep --wait 1h --wait-most 1h -- ./run >out.txt 2>&1 &
job=$!
until grep -q 'restarting in 1h' out.txt; do sleep 0.1; done
kill $job
wait $job
[ $? -eq 75 ] || fail "a signal between two starts"
# What a command that crashes leaves behind does not meet the next one.
cat >litter <<'END'
#!/bin/sh
[ -s left ] && kill -0 "$(cat left)" 2>/dev/null && exit 2
setsid sleep 1000 &
echo $! >left
[ -e second ] && exit 0
>second
kill -SEGV $$
END
chmod +x litter
rm -f left
ok zkeep --wait 0s -- ./litter
kill -0 "$(cat left)" 2>/dev/null && fail "something is left of a run that is done"
# A launcher that does not notice that all of its ranks are dead, as Open MPI's may: it is ended, and there is another
# start. One that has a rank left, or works itself, is not.
cat >launch <<'END'
#!/bin/bash
[ -e "$1" ] && exit 0
>"$1"
case $1 in
orphan) (sleep 1) & exec sleep 1000 ;;
half) (sleep 1) & sleep 4 & exec sleep 4 ;;
works) (sleep 1) & ulimit -t 4; exec yes >/dev/null ;; # four seconds of the core, then an end by a signal
esac
END
chmod +x launch
ok zkeep --wait 0s --orphan-timeout 1s -- ./launch orphan
says 'all processes that the command started have been dead for 1s'
says 'the command exited with code 137'
ok zkeep --wait 0s --orphan-timeout 1s -- ./launch half
says 'start 1' && grep 'have been dead' out.txt && fail "a launcher with a rank is ended"
ok zkeep --wait 0s --orphan-timeout 3s -- ./launch works
grep 'have been dead' out.txt && fail "a command that works is ended"
# zkeep is killed: its command is told, as mpirun, which then ends its ranks.
cat >orphan <<'END'
#!/bin/sh
trap 'echo told >told; exit 1' TERM
>runs
while :; do sleep 0.1; done
END
chmod +x orphan
zkeep -- ./orphan &
job=$!
until [ -e runs ]; do sleep 0.1; done
kill -KILL $job
wait $job
tries=0
until [ -s told ]; do
  sleep 0.1
  tries=$((tries + 1))
  [ $tries -lt 100 ] || fail "the command of a zkeep that was killed goes on"
done

# ---- hosts ----
cat >mpirun <<'END'
#!/bin/sh
echo "$@" >>commands
grep -v '^b' hosts >now && mv now hosts # and b goes away
exit "$([ "$(wc -l <commands)" -eq 3 ] && echo 0 || echo 1)"
END
chmod +x mpirun
printf 'a slots=4\nb slots=4\nc slots=4 # last\n' >hosts
>up_a && >up_b && >up_c
cat >probe <<'END'
#!/bin/sh
[ -e "up_$1" ]
END
chmod +x probe
rm -f commands
(until [ -s commands ]; do sleep 0.1; done; rm up_c) &
ok timeout 60 zkeep --wait 1s --hosts hosts --ranks 12,8,4 --probe './probe HOST' -- ./mpirun zrun train
wait
cat >want <<'END'
-np 12 --host a:4,b:4,c:4 zrun train
-np 4 --host a:4 zrun train
-np 4 --host a:4 zrun train
END
cmp commands want || { cat commands out.txt; fail "other hosts, or other numbers of ranks"; }
says 'host c does not answer and is left out'
rm up_a
refuses 'too few hosts answer for any of 12,8,4 ranks' zkeep --wait 0s --restarts 1 --hosts hosts --ranks 12,8,4 \
  --probe './probe HOST' -- ./mpirun zrun train
refuses 'with --hosts zkeep gives -np itself' zkeep --hosts hosts --ranks 4 -- ./mpirun -np 4 zrun
refuses '--hosts needs --ranks' zkeep --hosts hosts -- ./mpirun zrun
refuses 'hosts:1: .a b. is not a host' sh -c "echo 'a b' >hosts; zkeep --hosts hosts --ranks 4 -- ./mpirun zrun"

# ---- the example for Slurm, with a Slurm of our own ----
mkdir slurm && cd slurm || exit 99
cat >scontrol <<'END'
#!/bin/sh
case $1 in
show) printf 'n1\nn2\nn3\n' ;;
*) echo "$@" >>queued ;;
esac
END
cat >srun <<'END'
#!/bin/sh
echo "$*" | grep -q 'nodelist=n[13] '
END
cat >mpirun <<'END'
#!/bin/sh
trap 'exit $(cat code)' USR1
echo "$@" >>commands
while :; do sleep 0.1; done
END
chmod +x scontrol srun mpirun
for end in 75 0 1; do
  echo $end >code
  rm -f commands queued
  PATH=$PWD:$PATH SLURM_JOB_ID=17 SLURM_JOB_NODELIST='n[1-3]' SLURM_NTASKS_PER_NODE=8 bash "$ZUG_SRC/examples/slurm.sh" >out.txt 2>&1 &
  job=$!
  tries=0
  until [ -s commands ]; do
    sleep 0.1
    tries=$((tries + 1))
    [ $tries -lt 100 ] || { cat out.txt; fail "the example does not start"; }
  done
  kill -USR1 $job
  wait $job
  [ $? -eq $end ] || { cat out.txt; fail "the example's code is not $end"; }
  grep -q -e '^-np 16 --host n1:8,n3:8 zrun train ' commands || { cat commands out.txt; fail "the example's command"; }
  case $end in
  75) [ "$(cat queued)" = 'requeue 17' ] || { cat out.txt; fail "the example is not queued again"; } ;;
  *) [ -e queued ] && fail "the example is queued again after code $end" ;;
  esac
done

# The same without mpirun: Slurm starts the ranks, and the signal is theirs.
cat >srun <<'END'
#!/bin/sh
echo "$@" >commands
exit $(cat code)
END
for end in 75 0 1; do
  echo $end >code
  rm -f commands queued
  PATH=$PWD:$PATH SLURM_JOB_ID=17 bash "$ZUG_SRC/examples/srun.sh" >out.txt 2>&1
  [ $? -eq $end ] || { cat out.txt; fail "the code of srun.sh is not $end"; }
  grep -q -e '^--mpi=pmix .*zrun train ' commands || { cat commands; fail "the command of srun.sh"; }
  [ $end != 75 ] || [ "$(cat queued)" = 'requeue 17' ] || { cat out.txt; fail "srun.sh is not queued again"; }
  [ $end = 75 ] || [ ! -e queued ] || fail "srun.sh is queued again after code $end"
done
exit 0
