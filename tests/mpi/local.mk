# Scenarios on several ranks: scripts run by tests/run-mpi.
scenario_tests += \
  tests/mpi/layouts.sh \
  tests/mpi/reference.sh
EXTRA_DIST += tests/mpi/layouts.zug
