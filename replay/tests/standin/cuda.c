// A stand-in of CUDA's driver, on the host: as much of it as the back end `nccl` loads.
//
// A device is a lock and memory of the host. A stream is a queue of commands with a thread that runs them, so work is
// as asynchronous as on a device, and streams run beside each other. An event counts how often it was recorded and how
// often it was reached. A graph is the list of commands that its streams were given; launching it gives them to streams
// of its own once more.
//
// It is stricter than the driver where that finds mistakes: memory is checked when work is queued, and a handle must
// belong to the device that it is used on.
//
// STANDIN_DEVICES: how many devices there are. STANDIN_MEMORY: bytes of each. STANDIN_OCCUPIED: bytes that others use.
// STANDIN_LOG: where the order of everything is written. Troubles: standin.h.

#define _GNU_SOURCE

#include "standin.h"

#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef uint64_t CUdeviceptr;

enum {
    MAX_DEVICES = 16,
    MAX_LANES = 16,  // streams in a graph
    MAX_PARAMETERS = 5,
    SMS = 8,
    SHARED_MEMORY = 227 << 10,
    LEAST_PRIORITY = 0,
    MOST_PRIORITY = -5,
    EVENT_DISABLE_TIMING = 2,
    EVENT_RECORD_EXTERNAL = 1,
    WAIT_VALUE_GEQ = 0,
};

#define RESULTS(X)                                                                                                     \
    X(SUCCESS, 0, "no error")                                                                                          \
    X(INVALID_VALUE, 1, "invalid argument")                                                                            \
    X(OUT_OF_MEMORY, 2, "out of memory")                                                                               \
    X(NO_DEVICE, 100, "no CUDA-capable device is detected")                                                            \
    X(INVALID_DEVICE, 101, "invalid device ordinal")                                                                   \
    X(INVALID_IMAGE, 200, "device kernel image is invalid")                                                            \
    X(INVALID_CONTEXT, 201, "invalid device context")                                                                  \
    X(INVALID_HANDLE, 400, "invalid resource handle")                                                                  \
    X(NOT_FOUND, 500, "named symbol not found")                                                                        \
    X(NOT_READY, 600, "device not ready")                                                                              \
    X(ILLEGAL_ADDRESS, 700, "an illegal memory access was encountered")                                                \
    X(CAPTURE_UNSUPPORTED, 900, "operation not permitted when stream is capturing")                                    \
    X(CAPTURE_UNMATCHED, 903, "capture was not initiated in this stream")                                              \
    X(CAPTURE_UNJOINED, 904, "capturing stream has unjoined work")                                                     \
    X(CAPTURE_ISOLATION, 905, "dependency created on uncaptured work in another stream")                               \
    X(CAPTURED_EVENT, 907, "operation not permitted on an event last recorded in a capturing stream")                  \
    X(UNKNOWN, 999, "unknown error")

enum result {
#define X(name, code, text) name = code,
    RESULTS(X)
#undef X
};

struct event {
    struct device *device;
    int timed;
    // How often it was recorded, and how many of these the device has come to.
    uint64_t recorded, reached;
    int64_t at_ns;  // when the device last came to it, or 0
    // Where it was last recorded, if that was while a graph was made.
    struct graph *graph;
    struct event *within;     // what stands for it there
    int seen[MAX_LANES];      // what of each of the graph's streams lies before it
};

enum kind { COPY, SET, KERNEL, CALL, RECORD, RECORD_IN_GRAPH, WAIT, WAIT_VALUE };

struct command {
    enum kind kind;
    const char *name;  // for the log, of commands that do something
    struct command *next;
    int lane;  // in a graph: the stream
    void (*run)(void *);
    void *data;
    uint8_t *to;
    const uint8_t *from;
    size_t bytes;
    int value;
    uint64_t parameters[MAX_PARAMETERS];
    struct event *event;
    uint64_t ticket;
};

struct stream {
    struct device *device;
    int id;  // on its device, in the order in which they were made
    pthread_cond_t more;
    struct command *first, *last;
    int pending;  // commands that have not ended
    int closed;
    struct graph *graph;  // that is being made of what it is given
    int lane;             // its number there
};

struct graph {
    struct device *device;
    int open;
    int lanes;
    struct stream *streams[MAX_LANES];
    int seen[MAX_LANES][MAX_LANES];  // per stream, how many commands of each stream lie before what comes next
    struct command *commands;
    size_t count;
};

struct executable {
    struct graph *graph;
    struct stream *streams[MAX_LANES];
    struct event *begin, *ends[MAX_LANES];
};

struct module {
    const char *image;
};

struct device {
    int ordinal;
    pthread_mutex_t lock;  // of its streams and events
    pthread_cond_t ended;  // a command, whichever
    int pending;           // commands that have not ended
    int streams;
    size_t allocated;
};

struct block {
    int device;  // or -1: pinned memory of the host
    uint8_t *at;
    size_t bytes;
    struct block *next;
};

static struct device devices[MAX_DEVICES];
static int device_count;
static _Thread_local struct device *current;

static pthread_mutex_t blocks_lock = PTHREAD_MUTEX_INITIALIZER;
static struct block *blocks;

static size_t number(const char *variable, size_t otherwise) {
    const char *text = getenv(variable);
    return text ? strtoull(text, NULL, 10) : otherwise;
}

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ll + now.tv_nsec;
}

static struct timespec moment(int64_t ns) {
    return (struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
}

// ---------------------------------------------------------------------------------------------------- for tests

static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;

void standin_log(const char *format, ...) {
    static FILE *file;
    const char *path = getenv("STANDIN_LOG");
    if (!path) return;
    va_list arguments;
    va_start(arguments, format);
    pthread_mutex_lock(&log_lock);
    if (!file) file = fopen(path, "w");
    if (file) {
        vfprintf(file, format, arguments);
        fputc('\n', file);
        fflush(file);
    }
    pthread_mutex_unlock(&log_lock);
    va_end(arguments);
}

int standin_told(enum trouble trouble, const char *call, int device) {
    static const char *const variables[] = {"STANDIN_FAIL", "STANDIN_HANG", "STANDIN_BREAK", "STANDIN_STALL"};
    static int asked[4];
    const char *text = getenv(variables[trouble]);
    char function[64];
    int on = -1, pass = 0;
    if (!text || sscanf(text, "%63[^@]@%d+%d", function, &on, &pass) < 2) return 0;
    if (strcmp(function, call) || on != device) return 0;
    return __atomic_fetch_add(&asked[trouble], 1, __ATOMIC_SEQ_CST) >= pass;
}

void standin_stall(void) {
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t never = PTHREAD_COND_INITIALIZER;
    pthread_mutex_lock(&lock);
    for (;;) pthread_cond_wait(&never, &lock);
}

int standin_current(void) { return current ? current->ordinal : -1; }

int standin_device(CUstream stream) { return stream->device->ordinal; }

int standin_inside(int device, const void *address, size_t bytes) {
    const uint8_t *at = address;
    int inside = bytes == 0;
    pthread_mutex_lock(&blocks_lock);
    for (struct block *block = blocks; block && !inside; block = block->next) {
        int mine = block->device == device || block->device < 0;
        inside = mine && at >= block->at && bytes <= block->bytes && at - block->at <= (long)(block->bytes - bytes);
    }
    pthread_mutex_unlock(&blocks_lock);
    return inside;
}

// What a call on this device comes to before it does anything.
static int troubled(const char *call, int device) {
    if (standin_told(STALL, call, device)) standin_stall();
    return standin_told(FAIL, call, device) ? UNKNOWN : SUCCESS;
}

// ---------------------------------------------------------------------------------------------- streams and events

static void log_command(const char *what, struct stream *stream, struct command *command) {
    int device = stream->device->ordinal, id = stream->id;
    if (command->bytes) {
        standin_log("%s %d %d %s %zu", what, device, id, command->name, command->bytes);
    } else {
        standin_log("%s %d %d %s", what, device, id, command->name);
    }
}

// Runs a command, with the device's lock held but not while it works.
static void run(struct stream *stream, struct command *command) {
    struct device *device = stream->device;
    struct event *event = command->event;
    switch (command->kind) {
    case WAIT:
        while (event->reached < command->ticket) pthread_cond_wait(&device->ended, &device->lock);
        return;
    case RECORD:
        event->reached = command->ticket;
        event->at_ns = now_ns();
        return;
    case RECORD_IN_GRAPH:
        event->at_ns = now_ns();
        return;
    case WAIT_VALUE:
        // The host writes the number without telling anybody, so it has to be looked at again and again.
        pthread_mutex_unlock(&device->lock);
        while ((int32_t)(__atomic_load_n((uint32_t *)command->to, __ATOMIC_ACQUIRE) - (uint32_t)command->value) < 0)
            sched_yield();
        pthread_mutex_lock(&device->lock);
        return;
    case COPY:
    case SET:
    case KERNEL:
    case CALL: break;
    }
    pthread_mutex_unlock(&device->lock);
    log_command("begin", stream, command);
    switch (command->kind) {
    case COPY: memcpy(command->to, command->from, command->bytes); break;
    case SET: memset(command->to, command->value, command->bytes); break;
    case KERNEL: command->run(command->parameters); break;
    case CALL: command->run(command->data); break;
    default: break;
    }
    log_command("end", stream, command);
    pthread_mutex_lock(&device->lock);
}

static void *work(void *argument) {
    struct stream *stream = argument;
    struct device *device = stream->device;
    pthread_mutex_lock(&device->lock);
    for (;;) {
        while (!stream->first && !stream->closed) pthread_cond_wait(&stream->more, &device->lock);
        struct command *command = stream->first;
        if (!command) break;
        run(stream, command);
        stream->first = command->next;
        free(command);
        stream->pending--;
        device->pending--;
        pthread_cond_broadcast(&device->ended);
    }
    pthread_mutex_unlock(&device->lock);
    return NULL;
}

static struct stream *new_stream(struct device *device, int id) {
    struct stream *stream = calloc(1, sizeof *stream);
    stream->device = device;
    stream->id = id;
    pthread_cond_init(&stream->more, NULL);
    pthread_t thread;
    if (pthread_create(&thread, NULL, work, stream)) return NULL;
    pthread_detach(thread);
    return stream;
}

static struct event *new_event(struct device *device, int timed) {
    struct event *event = calloc(1, sizeof *event);
    event->device = device;
    event->timed = timed;
    return event;
}

// Appends to the stream's queue, or to the graph that is being made of it. With the device's lock held.
static void push(struct stream *stream, struct command command) {
    struct graph *graph = stream->graph;
    if (graph) {
        command.lane = stream->lane;
        graph->seen[stream->lane][stream->lane]++;
        graph->commands = realloc(graph->commands, (graph->count + 1) * sizeof command);
        graph->commands[graph->count++] = command;
        return;
    }
    if (command.kind == RECORD) {
        command.ticket = ++command.event->recorded;
        command.event->graph = NULL;
    } else if (command.kind == WAIT) {
        command.ticket = command.event->recorded;
    }
    struct command *queued = malloc(sizeof *queued);
    *queued = command;
    queued->next = NULL;
    if (stream->first) {
        stream->last->next = queued;
    } else {
        stream->first = queued;
    }
    stream->last = queued;
    stream->pending++;
    stream->device->pending++;
    pthread_cond_signal(&stream->more);
}

static int enqueue(struct stream *stream, struct command command) {
    if (command.name) log_command("issue", stream, &command);
    pthread_mutex_lock(&stream->device->lock);
    push(stream, command);
    pthread_mutex_unlock(&stream->device->lock);
    return SUCCESS;
}

int standin_enqueue(CUstream stream, const char *name, void (*call)(void *), void *data) {
    return enqueue(stream, (struct command){.kind = CALL, .name = name, .run = call, .data = data});
}

// Makes the stream one of those that the graph is made of.
static void adopt(struct graph *graph, struct stream *stream) {
    stream->graph = graph;
    stream->lane = graph->lanes++;
    graph->streams[stream->lane] = stream;
}

static int record(struct stream *stream, struct event *event, int in_graph) {
    if (event->device != stream->device) return INVALID_HANDLE;
    struct graph *graph = stream->graph;
    if (in_graph && !graph) return INVALID_VALUE;
    if (in_graph || !graph) {
        push(stream, (struct command){.kind = in_graph ? RECORD_IN_GRAPH : RECORD, .event = event});
        return SUCCESS;
    }
    event->graph = graph;
    event->within = new_event(stream->device, 0);
    push(stream, (struct command){.kind = RECORD, .event = event->within});
    memcpy(event->seen, graph->seen[stream->lane], sizeof event->seen);
    return SUCCESS;
}

static int await(struct stream *stream, struct event *event) {
    if (event->device != stream->device) return INVALID_HANDLE;
    struct graph *graph = event->graph;
    if (!graph) {
        if (stream->graph) return CAPTURE_ISOLATION;
        push(stream, (struct command){.kind = WAIT, .event = event});
        return SUCCESS;
    }
    if (!graph->open) return CAPTURED_EVENT;
    if (!stream->graph) {
        if (graph->lanes == MAX_LANES) return OUT_OF_MEMORY;
        adopt(graph, stream);
    }
    push(stream, (struct command){.kind = WAIT, .event = event->within});
    for (int lane = 0; lane < graph->lanes; lane++) {
        int *seen = &graph->seen[stream->lane][lane];
        if (*seen < event->seen[lane]) *seen = event->seen[lane];
    }
    return SUCCESS;
}

int cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority) {
    (void)flags;
    if (!current) return INVALID_CONTEXT;
    pthread_mutex_lock(&current->lock);
    int id = current->streams++;
    pthread_mutex_unlock(&current->lock);
    standin_log("stream %d %d %d", current->ordinal, id, priority);
    *stream = new_stream(current, id);
    return *stream ? SUCCESS : OUT_OF_MEMORY;
}

int cuStreamDestroy_v2(CUstream stream) {
    pthread_mutex_lock(&stream->device->lock);
    stream->closed = 1;
    pthread_cond_signal(&stream->more);
    pthread_mutex_unlock(&stream->device->lock);
    return SUCCESS;
}

int cuStreamSynchronize(CUstream stream) {
    struct device *device = stream->device;
    if (stream->graph) return CAPTURE_UNSUPPORTED;
    pthread_mutex_lock(&device->lock);
    while (stream->pending) pthread_cond_wait(&device->ended, &device->lock);
    pthread_mutex_unlock(&device->lock);
    return SUCCESS;
}

int cuStreamWaitEvent(CUstream stream, struct event *event, unsigned flags) {
    (void)flags;
    int result = troubled("cuStreamWaitEvent", stream->device->ordinal);
    if (result) return result;
    pthread_mutex_lock(&stream->device->lock);
    result = await(stream, event);
    pthread_mutex_unlock(&stream->device->lock);
    return result;
}

int cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr at, uint32_t value, unsigned flags) {
    if (flags != WAIT_VALUE_GEQ) return INVALID_VALUE;
    if (!standin_inside(stream->device->ordinal, (void *)at, sizeof value)) return ILLEGAL_ADDRESS;
    return enqueue(stream, (struct command){.kind = WAIT_VALUE, .to = (void *)at, .value = (int)value});
}

int cuEventCreate(struct event **event, unsigned flags) {
    if (!current) return INVALID_CONTEXT;
    *event = new_event(current, !(flags & EVENT_DISABLE_TIMING));
    return SUCCESS;
}

int cuEventDestroy_v2(struct event *event) { return event ? SUCCESS : INVALID_HANDLE; }

int cuEventRecordWithFlags(struct event *event, CUstream stream, unsigned flags) {
    pthread_mutex_lock(&stream->device->lock);
    int result = record(stream, event, flags == EVENT_RECORD_EXTERNAL);
    pthread_mutex_unlock(&stream->device->lock);
    return result;
}

int cuEventRecord(struct event *event, CUstream stream) { return cuEventRecordWithFlags(event, stream, 0); }

int cuEventQuery(struct event *event) {
    // Ranks ask this again and again, and there may be more of them than cores: who asks in vain waits a little for
    // anything to end, or the threads of the streams would hardly get to run.
    const int64_t PATIENCE_NS = 100000;
    struct device *device = event->device;
    if (event->graph) return CAPTURED_EVENT;
    pthread_mutex_lock(&device->lock);
    if (event->reached < event->recorded) {
        struct timespec until = moment(now_ns() + PATIENCE_NS);
        pthread_cond_timedwait(&device->ended, &device->lock, &until);
    }
    int result = event->reached < event->recorded ? NOT_READY : SUCCESS;
    pthread_mutex_unlock(&device->lock);
    return result;
}

int cuEventElapsedTime(float *ms, struct event *from, struct event *to) {
    struct device *device = to->device;
    if (from->device != device || !from->timed || !to->timed) return INVALID_HANDLE;
    pthread_mutex_lock(&device->lock);
    int result = from->reached < from->recorded || to->reached < to->recorded ? NOT_READY : SUCCESS;
    if (!from->at_ns || !to->at_ns) result = INVALID_HANDLE;
    *ms = (float)((double)(to->at_ns - from->at_ns) / 1e6);
    pthread_mutex_unlock(&device->lock);
    return result;
}

// ------------------------------------------------------------------------------------------------------------ graphs

int cuStreamBeginCapture_v2(CUstream stream, int mode) {
    (void)mode;
    if (stream->graph) return CAPTURE_UNSUPPORTED;
    struct graph *graph = calloc(1, sizeof *graph);
    graph->device = stream->device;
    graph->open = 1;
    pthread_mutex_lock(&stream->device->lock);
    adopt(graph, stream);
    pthread_mutex_unlock(&stream->device->lock);
    return SUCCESS;
}

int cuStreamEndCapture(CUstream stream, struct graph **made) {
    struct graph *graph = stream->graph;
    if (!graph || graph->streams[0] != stream) return CAPTURE_UNMATCHED;
    int result = SUCCESS;
    pthread_mutex_lock(&stream->device->lock);
    for (int lane = 0; lane < graph->lanes; lane++) {
        // Everything that any stream was given must lie before the end of the first.
        if (graph->seen[0][lane] < graph->seen[lane][lane]) result = CAPTURE_UNJOINED;
        graph->streams[lane]->graph = NULL;
    }
    graph->open = 0;
    pthread_mutex_unlock(&stream->device->lock);
    *made = result ? NULL : graph;
    return result;
}

int cuGraphInstantiateWithFlags(struct executable **made, struct graph *graph, uint64_t flags) {
    (void)flags;
    struct executable *this = calloc(1, sizeof *this);
    this->graph = graph;
    this->begin = new_event(graph->device, 0);
    for (int lane = 0; lane < graph->lanes; lane++) {
        // In the log they are the streams that they stand for.
        this->streams[lane] = new_stream(graph->device, graph->streams[lane]->id);
        this->ends[lane] = new_event(graph->device, 0);
        if (!this->streams[lane]) return OUT_OF_MEMORY;
    }
    *made = this;
    return SUCCESS;
}

int cuGraphLaunch(struct executable *this, CUstream stream) {
    struct graph *graph = this->graph;
    int result = troubled("cuGraphLaunch", graph->device->ordinal);
    if (result) return result;
    pthread_mutex_lock(&graph->device->lock);
    record(stream, this->begin, 0);
    for (int lane = 0; lane < graph->lanes; lane++) await(this->streams[lane], this->begin);
    for (size_t i = 0; i < graph->count; i++) push(this->streams[graph->commands[i].lane], graph->commands[i]);
    for (int lane = 0; lane < graph->lanes; lane++) {
        record(this->streams[lane], this->ends[lane], 0);
        await(stream, this->ends[lane]);
    }
    pthread_mutex_unlock(&graph->device->lock);
    return SUCCESS;
}

int cuGraphDestroy(struct graph *graph) { return graph ? SUCCESS : INVALID_VALUE; }

int cuGraphExecDestroy(struct executable *this) {
    for (int lane = 0; lane < this->graph->lanes; lane++) cuStreamDestroy_v2(this->streams[lane]);
    return SUCCESS;
}

// ------------------------------------------------------------------------------------------------------------ memory

static void *allocate(int device, size_t bytes) {
    struct block *block = malloc(sizeof *block);
    *block = (struct block){.device = device, .at = malloc(bytes), .bytes = bytes};
    pthread_mutex_lock(&blocks_lock);
    block->next = blocks;
    blocks = block;
    pthread_mutex_unlock(&blocks_lock);
    return block->at;
}

// Bytes that were freed; 0 if nothing begins there.
static size_t release(void *at) {
    size_t bytes = 0;
    pthread_mutex_lock(&blocks_lock);
    for (struct block **link = &blocks; *link; link = &(*link)->next) {
        struct block *block = *link;
        if (block->at != at) continue;
        *link = block->next;
        bytes = block->bytes;
        free(block->at);
        free(block);
        break;
    }
    pthread_mutex_unlock(&blocks_lock);
    return bytes;
}

// Others use some of it, and what was allocated is gone.
static size_t free_bytes(struct device *device) {
    size_t all = number("STANDIN_MEMORY", (size_t)1 << 30), used = number("STANDIN_OCCUPIED", 0) + device->allocated;
    return all > used ? all - used : 0;
}

int cuMemGetInfo_v2(size_t *available, size_t *all) {
    if (!current) return INVALID_CONTEXT;
    pthread_mutex_lock(&current->lock);
    *available = free_bytes(current);
    pthread_mutex_unlock(&current->lock);
    *all = number("STANDIN_MEMORY", (size_t)1 << 30);
    return SUCCESS;
}

int cuMemAlloc_v2(CUdeviceptr *at, size_t bytes) {
    if (!current) return INVALID_CONTEXT;
    int result = bytes ? troubled("cuMemAlloc", current->ordinal) : INVALID_VALUE;
    if (result) return result;
    pthread_mutex_lock(&current->lock);
    if (bytes > free_bytes(current)) result = OUT_OF_MEMORY;
    if (!result) current->allocated += bytes;
    pthread_mutex_unlock(&current->lock);
    if (!result) *at = (CUdeviceptr)allocate(current->ordinal, bytes);
    return result;
}

// As the driver does, waits until nothing runs on the device any more.
int cuMemFree_v2(CUdeviceptr at) {
    if (!current) return INVALID_CONTEXT;
    pthread_mutex_lock(&current->lock);
    while (current->pending) pthread_cond_wait(&current->ended, &current->lock);
    size_t bytes = release((void *)at);
    current->allocated -= bytes;
    pthread_mutex_unlock(&current->lock);
    return bytes ? SUCCESS : INVALID_VALUE;
}

int cuMemHostAlloc(void **at, size_t bytes, unsigned flags) {
    (void)flags;
    if (!current) return INVALID_CONTEXT;
    *at = allocate(-1, bytes);
    return SUCCESS;
}

int cuMemFreeHost(void *at) { return release(at) ? SUCCESS : INVALID_VALUE; }

int cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    int device = stream->device->ordinal;
    if (!standin_inside(device, (void *)to, bytes) || !standin_inside(device, (void *)from, bytes))
        return ILLEGAL_ADDRESS;
    struct command copy = {.kind = COPY, .name = "copy", .to = (void *)to, .from = (void *)from, .bytes = bytes};
    return enqueue(stream, copy);
}

int cuMemsetD8Async(CUdeviceptr to, uint8_t value, size_t bytes, CUstream stream) {
    if (!standin_inside(stream->device->ordinal, (void *)to, bytes)) return ILLEGAL_ADDRESS;
    struct command set = {.kind = SET, .name = "set", .to = (void *)to, .value = value, .bytes = bytes};
    return enqueue(stream, set);
}

// ----------------------------------------------------------------------------------------------------------- kernels

// `inside` says whether the memory that it touches with these parameters is the device's.
struct kernel {
    const char *name;
    int parameters;
    void (*run)(void *);
    int (*inside)(int device, const uint64_t *parameters);
};

static void sleep_until(int64_t ns) {
    struct timespec end = moment(ns);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, NULL)) continue;
}

static void run_stream(void *parameters) {
    const uint64_t *p = parameters;
    int64_t end = now_ns() + (int64_t)p[3];
    memcpy((void *)p[1], (void *)p[0], 16 * p[2]);
    sleep_until(end);
}

static int stream_inside(int device, const uint64_t *p) {
    return standin_inside(device, (void *)p[0], 16 * p[2]) && standin_inside(device, (void *)p[1], 16 * p[2]) &&
           standin_inside(device, (void *)p[4], 16);
}

static void run_hold(void *parameters) { sleep_until(now_ns() + *(int64_t *)parameters); }

static int hold_inside(int device, const uint64_t *p) { return standin_inside(device, (void *)p[3], 16); }

// One number for all: nobody looks at it.
static void run_fill(void *parameters) {
    const uint64_t *p = parameters;
    memset((void *)p[0], 0x3c, 8 * p[1]);
}

static int fill_inside(int device, const uint64_t *p) { return standin_inside(device, (void *)p[0], 8 * p[1]); }

static const struct kernel KERNELS[] = {
    {"maestro_stream", 5, run_stream, stream_inside},
    {"maestro_hold", 4, run_hold, hold_inside},
    {"maestro_fill", 3, run_fill, fill_inside},
};

int cuModuleLoadData(struct module **module, const void *image) {
    if (!current) return INVALID_CONTEXT;
    if (!strstr(image, ".version")) return INVALID_IMAGE;
    *module = malloc(sizeof **module);
    (*module)->image = image;
    return SUCCESS;
}

int cuModuleUnload(struct module *module) {
    free(module);
    return SUCCESS;
}

int cuModuleGetFunction(const struct kernel **function, struct module *module, const char *name) {
    char entry[128];
    snprintf(entry, sizeof entry, ".entry %s(", name);
    if (!strstr(module->image, entry)) return NOT_FOUND;
    for (size_t i = 0; i < sizeof KERNELS / sizeof *KERNELS; i++) {
        if (strcmp(KERNELS[i].name, name)) continue;
        *function = &KERNELS[i];
        return SUCCESS;
    }
    return NOT_FOUND;
}

int cuFuncSetAttribute(const struct kernel *function, int attribute, int value) {
    (void)attribute;
    return function && value <= SHARED_MEMORY ? SUCCESS : INVALID_VALUE;
}

int cuLaunchKernel(const struct kernel *function, unsigned gx, unsigned gy, unsigned gz, unsigned tx, unsigned ty,
                   unsigned tz, unsigned shared_memory, CUstream stream, void **parameters, void **extra) {
    if (!gx || !gy || !gz || !tx || !ty || !tz || tx * ty * tz > 1024 || extra) return INVALID_VALUE;
    if (shared_memory > SHARED_MEMORY) return INVALID_VALUE;
    int result = troubled("cuLaunchKernel", stream->device->ordinal);
    if (result) return result;
    struct command launch = {.kind = KERNEL, .name = function->name, .run = function->run};
    for (int i = 0; i < function->parameters; i++) memcpy(&launch.parameters[i], parameters[i], sizeof(uint64_t));
    if (!function->inside(stream->device->ordinal, launch.parameters)) return ILLEGAL_ADDRESS;
    return enqueue(stream, launch);
}

// ----------------------------------------------------------------------------------------------- devices and contexts

static void make_devices(void) {
    size_t count = number("STANDIN_DEVICES", 1);
    device_count = count > MAX_DEVICES ? MAX_DEVICES : (int)count;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    for (int i = 0; i < device_count; i++) {
        devices[i].ordinal = i;
        pthread_mutex_init(&devices[i].lock, NULL);
        pthread_cond_init(&devices[i].ended, &monotonic);
    }
}

int cuInit(unsigned flags) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)flags;
    pthread_once(&once, make_devices);
    return device_count ? SUCCESS : NO_DEVICE;
}

int cuDriverGetVersion(int *version) {
    *version = 12080;
    return SUCCESS;
}

int cuGetErrorName(int code, const char **name) {
    switch (code) {
#define X(result, value, text)                                                                                         \
    case value: *name = "CUDA_ERROR_" #result; return SUCCESS;
        RESULTS(X)
#undef X
    }
    return INVALID_VALUE;
}

int cuGetErrorString(int code, const char **sentence) {
    switch (code) {
#define X(result, value, text)                                                                                         \
    case value: *sentence = text; return SUCCESS;
        RESULTS(X)
#undef X
    }
    return INVALID_VALUE;
}

int cuDeviceGetCount(int *count) {
    *count = device_count;
    return SUCCESS;
}

int cuDeviceGet(int *device, int ordinal) {
    *device = ordinal;
    return ordinal >= 0 && ordinal < device_count ? SUCCESS : INVALID_DEVICE;
}

int cuDeviceGetName(char *name, int room, int device) {
    snprintf(name, (size_t)room, "Stand-in %d", device);
    return SUCCESS;
}

int cuDeviceTotalMem_v2(size_t *bytes, int device) {
    (void)device;
    *bytes = number("STANDIN_MEMORY", (size_t)1 << 30);
    return SUCCESS;
}

int cuDeviceGetAttribute(int *value, int attribute, int device) {
    (void)device;
    switch (attribute) {
    case 16: *value = SMS; return SUCCESS;
    case 75: *value = 9; return SUCCESS;  // compute capability, major
    case 76: *value = 0; return SUCCESS;  // minor
    case 97: *value = SHARED_MEMORY; return SUCCESS;
    }
    return INVALID_VALUE;
}

int cuDevicePrimaryCtxRetain(struct device **context, int device) {
    *context = &devices[device];
    return SUCCESS;
}

int cuDevicePrimaryCtxRelease_v2(int device) {
    pthread_mutex_lock(&devices[device].lock);
    standin_log("released %d %zu", device, devices[device].allocated);
    pthread_mutex_unlock(&devices[device].lock);
    return SUCCESS;
}

int cuCtxSetCurrent(struct device *context) {
    current = context;
    return SUCCESS;
}

int cuCtxGetStreamPriorityRange(int *least, int *most) {
    *least = LEAST_PRIORITY;
    *most = MOST_PRIORITY;
    return SUCCESS;
}
