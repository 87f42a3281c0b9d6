/* The device of threads with a communicator of its own, as NCCL's is of CUDA: what is started goes to the
 * current stream, is done for the host at once, and holds the stream until all who take part have come to it.
 * So ranks must start what they do in one order, groups belong to one stream each, and messages between two
 * ranks match by their order alone. What is not so hangs, ends in "bug in zug" or gives other numbers. */
#ifndef ZUG_TEST_QUEUED_H
#define ZUG_TEST_QUEUED_H

#include "runtime/exec/device/device.h"

/* Jobs on it have a world that exchanges (job.h). */
const ZxDeviceTable *queued_device(void);
/* How often communicators were made again after a capture that failed, of all ranks. */
extern _Atomic int queued_rebuilt;

#endif
