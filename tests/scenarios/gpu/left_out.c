/* What plans for GPUs do not have: skipped, until the device has it. From then on these fail: they ask for its cases. */
#include <criterion/criterion.h>

#include "runtime/exec/device/device.h"

Test(left_out, adamw8) {
  cr_assert(!zx_device_cuda.adamw8, "it is there now: its cases are those of tests/unit/kernels/adamw8.c");
  cr_skip_test("states of 8 bits are not kept on GPUs in this version");
}

Test(left_out, muon) {
  cr_assert(!zx_device_cuda.orthogonalize,
            "it is there now: its cases are those of tests/unit/kernels/muon.c");
  cr_skip_test("optimizer `muon` does not run on GPUs in this version");
}
