# The container file and the example for Kubernetes, as far as a machine without either can tell; and the demo as a container
# runs it: with programs that are there already, in few steps.
. "$ZUG_SRC/tests/scenarios/lib.sh"

# ---- the container file: stages, what is copied, commands ----
file=$ZUG_SRC/Containerfile
[ "$(grep -c '^FROM debian:[0-9]*-slim' "$file")" -eq 2 ] && [ "$(grep -c '^FROM' "$file")" -eq 2 ] || fail "not two stages of Debian slim"
sed -n 's/^FROM .* AS //p' "$file" >stages.txt
for stage in $(sed -n 's/^COPY --from=\([^ ]*\) .*/\1/p' "$file"); do grep -qx "$stage" stages.txt || fail "no stage $stage"; done
! grep -vE '^(#|$|FROM|WORKDIR|COPY|RUN|ENV|CMD|    )' "$file" || fail "lines that are no instructions"
awk '/^RUN / { sub(/^RUN /, ""); on = 1 } on { print; if ($0 !~ /\\$/) on = 0 }' "$file" >run.sh
sh -n run.sh || fail "what RUN runs is no shell"
grep -q '^    relocatable\|relocatable:' "$ZUG_SRC/share/local.mk" && grep -q 'relocatable TO=/opt/zug' run.sh || fail "no make relocatable"
for path in build .git; do grep -qx "$path" "$ZUG_SRC/.dockerignore" || fail "$path would be copied"; done
says_so() { "$ZUG_SRC/bootstrap" --help | grep -q "^  $1 "; }
for command in $(grep -oE '\./bootstrap"?,? "?[a-z]+' "$file" | grep -oE '[a-z]+$'); do says_so "$command" || fail "no bootstrap $command"; done

# ---- the example for Kubernetes ----
if python3 -c 'import yaml' 2>/dev/null; then
  python3 - "$ZUG_SRC/examples/kubernetes.yaml" >command.txt <<'END2' || fail "examples/kubernetes.yaml"
import sys, yaml
job, = yaml.safe_load_all(open(sys.argv[1]))
assert (job['apiVersion'], job['kind']) == ('kubeflow.org/v2beta1', 'MPIJob'), job['kind']
spec = job['spec']
roles = spec['mpiReplicaSpecs']
assert set(roles) == {'Launcher', 'Worker'} and roles['Launcher']['replicas'] == 1
for name, role in roles.items():
    pod = role['template']['spec']
    one, = pod['containers']
    assert one['image'] == 'zug' and all(isinstance(w, str) for w in one['command']), one
    assert {m['name'] for m in one['volumeMounts']} == {v['name'] for v in pod['volumes']}, name
    assert 'persistentVolumeClaim' in pod['volumes'][0]
launcher = roles['Launcher']['template']['spec']
words = launcher['containers'][0]['command']
option = lambda name: words[words.index(name) + 1]
ranks = [int(n) for n in option('--ranks').split(',')]
assert ranks[0] == spec['slotsPerWorker'] * roles['Worker']['replicas'], ranks
assert len(ranks) == len(option('--recipe').split(':')[1].split(','))
assert launcher['terminationGracePeriodSeconds'] > 60 * int(option('--grace').rstrip('m'))
assert roles['Launcher']['restartPolicy'] == 'OnFailure' # code 75: to be started again
print('\n'.join(words))
END2
  # Each option is one of the program before it.
  program=
  while read -r word; do
    case $word in
    zkeep | mpirun | zrun) program=$word ;;
    --) ;;
    --*) [ "$program" = mpirun ] || "$program" --help | grep -qE -- "^  (-., )?$word( |\$)" || fail "$program has no $word" ;;
    esac
  done <command.txt
  [ "$program" = zrun ] || fail "no zrun in the example"
else
  echo "no PyYAML: the example for Kubernetes is not looked at"
fi

# ---- the demo, as the container starts it ----
need_mpi
rm -rf source && mkdir source
(cd "$ZUG_SRC" && tar -cf - bootstrap README.md lang examples stdlib graph compiler runtime kernels base tests/scenarios/containers.sh) | tar -xf - -C source || fail "no copy"
ok env ZUG_BIN="$ZUG_BUILD" DEMO_STEPS=6 COMPARE_STEPS=4 sh source/bootstrap demo
says '^     4 .* ([0-9.]+e-(0[6-9]|1[0-9])|0\.0e[+]00)$'
says '^largest relative difference [0-9.]+e-0[6-9] in 4 steps, '
says 'fell from 5[.0-9]* to [45][.0-9]* nats a byte .mean of the last 6 steps'
says 'bootstrap: .*build/demo/losses.svg'
for word in run8 run1; do grep -q ">$word</text>" source/build/demo/losses.svg || fail "no curve of $word"; done
[ ! -e source/build/Makefile ] || fail "it builds although the programs are there"
