/* The device of threads (device_threads.c), for tests that add to it. */
#ifndef ZUG_TEST_DEVICE_THREADS_H
#define ZUG_TEST_DEVICE_THREADS_H

#include "runtime/exec/device/device.h"

/* Queues a call on the current stream as the device's own are, with a copy of its arguments; a step that is
 * captured keeps it. */
void threads_push(const ZkEnv *env, void (*fn)(const void *args), const void *args, size_t bytes);

#endif
