# bootstrap explains itself, refuses what it does not know, and without root lists missing packages and stops.
. "$ZUG_SRC/tests/scenarios/lib.sh"

ok "$ZUG_SRC/bootstrap" --help
says 'usage: ./bootstrap COMMAND'
refuses "no command 'tset'" "$ZUG_SRC/bootstrap" tset
refuses 'usage:' "$ZUG_SRC/bootstrap"

# A machine where nobody is root, sudo wants a password, and two packages are missing.
mkdir fake
cat >fake/id <<'END'
#!/bin/sh
echo 1000
END
cat >fake/sudo <<'END'
#!/bin/sh
exit 1
END
cat >fake/apt-get <<'END'
#!/bin/sh
echo "apt-get must not run here" >&2
exit 99
END
cat >fake/dpkg-query <<'END'
#!/bin/sh
for name; do :; done
case $name in flex | libcriterion-dev) exit 1 ;; esac
printf installed
END
chmod +x fake/*
refuses 'apt-get install flex$' env PATH="$(pwd)/fake:$PATH" "$ZUG_SRC/bootstrap" build </dev/null
refuses 'apt-get install flex libcriterion-dev$' env PATH="$(pwd)/fake:$PATH" "$ZUG_SRC/bootstrap" check </dev/null
grep -q 'must not run' out.txt && fail "it ran apt-get"
exit 0
