// What the stand-in of CUDA's driver offers to the stand-ins of the libraries above it.
//
// None of the three libraries frees what they hand out, memory of devices apart: a test's process is short, and work
// that is still queued may name it.
#pragma once

#include <stddef.h>
#include <stdint.h>

typedef struct stream *CUstream;

// Troubles that a test asks for: the variable STANDIN_FAIL, STANDIN_HANG, STANDIN_BREAK or STANDIN_STALL holds
// FUNCTION@DEVICE, or FUNCTION@DEVICE+N to let the first N times pass.
enum trouble {
    FAIL,   // the call returns an error
    HANG,   // the call returns, and what it put on the stream never ends
    BREAK,  // as HANG, and the communicator says that something went wrong
    STALL,  // the call never returns
};

// Whether `call` on `device` shall have this trouble now. Asking counts.
int standin_told(enum trouble trouble, const char *call, int device);

// The device that is current on this thread, or -1.
int standin_current(void);

// The device of a stream.
int standin_device(CUstream stream);

// Whether all of these bytes are pinned memory, or one allocation of this device.
int standin_inside(int device, const void *at, size_t bytes);

// Has `run` called with `data` when everything before it on the stream has ended, and logs it as `name`.
int standin_enqueue(CUstream stream, const char *name, void (*run)(void *), void *data);

// Appends a line to the file that STANDIN_LOG names.
void standin_log(const char *format, ...) __attribute__((format(printf, 1, 2)));

// Never returns.
void standin_stall(void);
