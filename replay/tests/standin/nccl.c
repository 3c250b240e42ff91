// A stand-in of NCCL on the stand-in of CUDA: as much of it as the back end `nccl` loads.
//
// Every operation is messages. Between any two ranks of a communicator there is a queue; a rank posts what it gives,
// takes what it gets (copied, or combined over all ranks), and ends once everything that it posted was taken. A message
// says of which call it is and how long, so calls that do not match are found, which NCCL itself does not promise.
//
// Reductions compute in f64. That is exact for what conformance compares: small integers. Infinities and NaNs of narrow
// floats are taken for numbers.
//
// STANDIN_NCCL_VERSION: what ncclGetVersion says. Troubles: standin.h.

#include "standin.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum result { SUCCESS = 0, UNHANDLED_CUDA = 1, INTERNAL = 3, INVALID_ARGUMENT = 4, INVALID_USAGE = 5, REMOTE = 6 };
enum dtype { I8 = 0, U8 = 1, I32 = 2, I64 = 4, F16 = 6, F32 = 7, F64 = 8, BF16 = 9, F8E4M3 = 10, F8E5M2 = 11 };
enum operation { SUM = 0, PROD = 1, MAX = 2, MIN = 3, AVG = 4 };

enum { MAX_RANKS = 16, UNDEFINED = -2147483647 - 1 };

typedef struct {
    char internal[128];
} ncclUniqueId;

// The fields of ncclConfig_t that are looked at, and those before them.
struct config {
    size_t size;
    unsigned magic, version;
    int blocking, cga_cluster_size, min_ctas, max_ctas;
    const char *net_name;
    int split_share, traffic_class;
    const char *name;
};

// What one rank posts for another.
struct message {
    const char *call;
    int to;
    const uint8_t *from;
    size_t bytes;
    int taken;
    struct message *next;
};

// What one rank takes: from `peer` as it is, or from all ranks, combined.
struct taking {
    const char *call;
    uint8_t *to;
    size_t bytes;
    int peer;
    int combined;
    enum dtype dtype;
    enum operation operation;
};

// The ranks of a communicator. Data is moved with the lock held, so an abort never comes between.
struct clique {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    char id[128];
    int ranks;
    int joined;
    struct message *posted[MAX_RANKS][MAX_RANKS];  // from, to: the oldest first
    // A split under way: what each rank gives, how many have, how many splits there were, and what each rank gets.
    int colours[MAX_RANKS], keys[MAX_RANKS], given, splits;
    struct clique *parts[MAX_RANKS];
    int seats[MAX_RANKS];
    struct clique *next;
};

// One rank of a communicator.
typedef struct member {
    struct clique *clique;
    int rank;
    int device;
    int state;  // the asynchronous error
    int aborted;
} *ncclComm_t;

// One launch: a call, or a group of them.
struct launch {
    ncclComm_t member;
    CUstream stream;
    const char *call;  // the first
    struct message *messages;
    int message_count;
    struct taking *takings;
    int taking_count;
};

static pthread_mutex_t cliques_lock = PTHREAD_MUTEX_INITIALIZER;
static struct clique *cliques;
static _Thread_local char last_error[128];

static int refused(enum result result, const char *why) {
    snprintf(last_error, sizeof last_error, "%s", why);
    return result;
}

// ----------------------------------------------------------------------------------------------------------- elements

static size_t width(enum dtype dtype) {
    switch (dtype) {
    case I8:
    case U8:
    case F8E4M3:
    case F8E5M2: return 1;
    case F16:
    case BF16: return 2;
    case I32:
    case F32: return 4;
    case I64:
    case F64: return 8;
    }
    return 0;
}

// The value of a float with a sign, `exponent` bits and `mantissa` bits.
static double wide(unsigned bits, int exponent, int mantissa) {
    int bias = (1 << (exponent - 1)) - 1, e = bits >> mantissa & ((1 << exponent) - 1);
    unsigned m = bits & ((1u << mantissa) - 1);
    double value = e ? ldexp(m + (1u << mantissa), e - bias - mantissa) : ldexp(m, 1 - bias - mantissa);
    return bits >> (exponent + mantissa) ? -value : value;
}

// The nearest such float, ties to even; the largest for what is beyond it.
static unsigned narrow(double value, int exponent, int mantissa) {
    int bias = (1 << (exponent - 1)) - 1, e;
    unsigned sign = signbit(value) ? 1u << (exponent + mantissa) : 0, most = (1u << (exponent + mantissa)) - 1;
    if (value == 0) return sign;
    frexp(value, &e);
    e = e - 1 < 1 - bias ? 1 - bias : e - 1;
    if (e > bias + 1) return sign | most;
    // The leading one counts as an exponent, and so does what rounding carries into it.
    unsigned bits = (unsigned)nearbyint(ldexp(fabs(value), mantissa - e)) + ((unsigned)(e + bias - 1) << mantissa);
    return sign | (bits < most ? bits : most);
}

static double element(enum dtype dtype, const uint8_t *at) {
    union {
        int32_t i32;
        int64_t i64;
        float f32;
        double f64;
        uint16_t bits;
    } of;
    memcpy(&of, at, width(dtype));
    switch (dtype) {
    case I8: return (int8_t)*at;
    case U8: return *at;
    case I32: return of.i32;
    case I64: return (double)of.i64;
    case F16: return wide(of.bits, 5, 10);
    case F32: return of.f32;
    case F64: return of.f64;
    case BF16: return wide(of.bits, 8, 7);
    case F8E4M3: return wide(*at, 4, 3);
    case F8E5M2: return wide(*at, 5, 2);
    }
    return 0;
}

static void put(enum dtype dtype, double value, uint8_t *at) {
    int64_t whole = (int64_t)fmax(fmin(value, 0x1p62), -0x1p62);
    int32_t i32 = (int32_t)whole;
    uint16_t bits;
    float f32;
    switch (dtype) {
    case I8:
    case U8: *at = (uint8_t)whole; break;
    case I32: memcpy(at, &i32, sizeof i32); break;
    case I64: memcpy(at, &whole, sizeof whole); break;
    case F16:
    case BF16:
        bits = (uint16_t)(dtype == F16 ? narrow(value, 5, 10) : narrow(value, 8, 7));
        memcpy(at, &bits, sizeof bits);
        break;
    case F32:
        f32 = (float)value;
        memcpy(at, &f32, sizeof f32);
        break;
    case F64: memcpy(at, &value, sizeof value); break;
    case F8E4M3: *at = (uint8_t)narrow(value, 4, 3); break;
    case F8E5M2: *at = (uint8_t)narrow(value, 5, 2); break;
    }
}

static double combine(enum operation operation, double a, double b) {
    switch (operation) {
    case SUM:
    case AVG: return a + b;
    case PROD: return a * b;
    case MAX: return a > b ? a : b;
    case MIN: return a < b ? a : b;
    }
    return 0;
}

// -------------------------------------------------------------------------------------------- running on a stream

// Waits until something happened to the clique. Gives 0 once the rank gave up.
static int wait_on(ncclComm_t member) {
    if (!member->aborted) pthread_cond_wait(&member->clique->changed, &member->clique->lock);
    return !member->aborted;
}

// The oldest message from `peer`, which must be of this call. Null once the rank gave up.
static struct message *oldest(ncclComm_t member, const struct taking *taking, int peer) {
    struct message **posted = &member->clique->posted[peer][member->rank];
    while (!*posted || (*posted)->bytes != taking->bytes || strcmp((*posted)->call, taking->call)) {
        if (*posted) member->state = INVALID_USAGE;
        if (!wait_on(member)) return NULL;
    }
    return *posted;
}

static void taken(ncclComm_t member, int peer) {
    struct message **posted = &member->clique->posted[peer][member->rank];
    (*posted)->taken = 1;
    *posted = (*posted)->next;
}

// Gives 0 once the rank gave up.
static int take(ncclComm_t member, const struct taking *taking) {
    if (!taking->combined) {
        struct message *message = oldest(member, taking, taking->peer);
        if (!message) return 0;
        memcpy(taking->to, message->from, taking->bytes);
        taken(member, taking->peer);
        return 1;
    }
    int ranks = member->clique->ranks;
    const uint8_t *from[MAX_RANKS];
    for (int peer = 0; peer < ranks;) {
        struct message *message = oldest(member, taking, peer);
        if (!message) return 0;
        from[peer++] = message->from;
        // What was found earlier may have been withdrawn while this one was waited for.
        for (int earlier = 0; earlier < peer; earlier++) {
            if (!member->clique->posted[earlier][member->rank]) peer = earlier;
        }
    }
    size_t each = width(taking->dtype);
    for (size_t at = 0; at < taking->bytes; at += each) {
        double value = element(taking->dtype, from[0] + at);
        for (int peer = 1; peer < ranks; peer++)
            value = combine(taking->operation, value, element(taking->dtype, from[peer] + at));
        put(taking->dtype, taking->operation == AVG ? value / ranks : value, taking->to + at);
    }
    for (int peer = 0; peer < ranks; peer++) taken(member, peer);
    return 1;
}

// Posts, takes, and waits until what was posted is taken. Gives 0 once the rank gave up.
static int exchange(struct launch *launch) {
    ncclComm_t member = launch->member;
    for (int i = 0; i < launch->message_count; i++) {
        struct message *message = &launch->messages[i], **last = &member->clique->posted[member->rank][message->to];
        message->taken = 0;
        message->next = NULL;
        while (*last) last = &(*last)->next;
        *last = message;
    }
    pthread_cond_broadcast(&member->clique->changed);
    for (int i = 0; i < launch->taking_count; i++) {
        if (!take(member, &launch->takings[i])) return 0;
        pthread_cond_broadcast(&member->clique->changed);
    }
    for (int i = 0; i < launch->message_count; i++) {
        while (!launch->messages[i].taken) {
            if (!wait_on(member)) return 0;
        }
    }
    return 1;
}

static void run(void *data) {
    struct launch *launch = data;
    ncclComm_t member = launch->member;
    struct clique *clique = member->clique;
    pthread_mutex_lock(&clique->lock);
    int broken = standin_told(BREAK, launch->call, member->device);
    if (broken) member->state = REMOTE;
    if (broken || standin_told(HANG, launch->call, member->device)) {
        while (wait_on(member)) continue;
    }
    if (member->aborted || !exchange(launch)) {
        // Its memory is about to go, so nobody may take from it any more.
        memset(clique->posted[member->rank], 0, sizeof clique->posted[member->rank]);
    }
    pthread_mutex_unlock(&clique->lock);
}

// --------------------------------------------------------------------------------------------------- calls and groups

static _Thread_local int depth;
static _Thread_local struct launch *group;
static _Thread_local int group_result;

static int begin_launch(struct launch *launch) {
    int result = standin_enqueue(launch->stream, launch->call, run, launch);
    return result ? refused(UNHANDLED_CUDA, "the stream takes nothing") : SUCCESS;
}

// The launch that a call is part of, or null and why not in `result`.
static struct launch *opened(ncclComm_t member, CUstream stream, const char *call, int *result) {
    *result = SUCCESS;
    if (!member || member->aborted || member->device != standin_device(stream)) {
        *result = refused(INVALID_ARGUMENT, "the communicator is not of the stream's device");
    } else if (standin_told(FAIL, call, member->device)) {
        *result = refused(INTERNAL, "the stand-in was told to fail");
    } else if (depth && group && (group->member != member || group->stream != stream)) {
        *result = refused(INVALID_USAGE, "the stand-in knows groups of one communicator and one stream only");
    }
    if (*result) {
        group_result = *result;
        return NULL;
    }
    if (standin_told(STALL, call, member->device)) standin_stall();
    if (depth && group) return group;
    struct launch *launch = calloc(1, sizeof *launch);
    *launch = (struct launch){.member = member, .stream = stream, .call = call};
    if (depth) group = launch;
    return launch;
}

// Ends a call. Memory that is not the device's is found here.
static int closed(struct launch *launch) {
    int device = launch->member->device, inside = 1;
    for (int i = 0; i < launch->message_count; i++)
        inside &= standin_inside(device, launch->messages[i].from, launch->messages[i].bytes);
    for (int i = 0; i < launch->taking_count; i++)
        inside &= standin_inside(device, launch->takings[i].to, launch->takings[i].bytes);
    if (!inside) return group_result = refused(INVALID_ARGUMENT, "the memory is not the device's");
    return depth ? SUCCESS : begin_launch(launch);
}

static void give(struct launch *launch, const char *call, int peer, const void *from, size_t bytes) {
    launch->messages = realloc(launch->messages, (size_t)(launch->message_count + 1) * sizeof *launch->messages);
    launch->messages[launch->message_count++] =
        (struct message){.call = call, .to = peer, .from = from, .bytes = bytes};
}

static void get(struct launch *launch, struct taking taking) {
    launch->takings = realloc(launch->takings, (size_t)(launch->taking_count + 1) * sizeof *launch->takings);
    launch->takings[launch->taking_count++] = taking;
}

int ncclGroupStart(void) {
    if (!depth++) group_result = SUCCESS;
    return SUCCESS;
}

int ncclGroupEnd(void) {
    if (--depth) return SUCCESS;
    struct launch *launch = group;
    group = NULL;
    if (group_result || !launch) return group_result;
    return begin_launch(launch);
}

int ncclAllReduce(const void *from, void *to, size_t count, enum dtype dtype, enum operation operation,
                  ncclComm_t comm, CUstream stream) {
    int result;
    struct launch *launch = opened(comm, stream, __func__, &result);
    if (!launch) return result;
    size_t bytes = count * width(dtype);
    for (int peer = 0; peer < comm->clique->ranks; peer++) give(launch, __func__, peer, from, bytes);
    get(launch, (struct taking){__func__, to, bytes, 0, 1, dtype, operation});
    return closed(launch);
}

int ncclReduce(const void *from, void *to, size_t count, enum dtype dtype, enum operation operation, int root,
               ncclComm_t comm, CUstream stream) {
    int result;
    struct launch *launch = opened(comm, stream, __func__, &result);
    if (!launch) return result;
    size_t bytes = count * width(dtype);
    give(launch, __func__, root, from, bytes);
    if (comm->rank == root) get(launch, (struct taking){__func__, to, bytes, 0, 1, dtype, operation});
    return closed(launch);
}

int ncclReduceScatter(const void *from, void *to, size_t count, enum dtype dtype, enum operation operation,
                      ncclComm_t comm, CUstream stream) {
    int result;
    struct launch *launch = opened(comm, stream, __func__, &result);
    if (!launch) return result;
    size_t bytes = count * width(dtype);
    for (int peer = 0; peer < comm->clique->ranks; peer++)
        give(launch, __func__, peer, (const uint8_t *)from + (size_t)peer * bytes, bytes);
    get(launch, (struct taking){__func__, to, bytes, 0, 1, dtype, operation});
    return closed(launch);
}

int ncclBroadcast(const void *from, void *to, size_t count, enum dtype dtype, int root, ncclComm_t comm,
                  CUstream stream) {
    int result;
    struct launch *launch = opened(comm, stream, __func__, &result);
    if (!launch) return result;
    size_t bytes = count * width(dtype);
    for (int peer = 0; comm->rank == root && peer < comm->clique->ranks; peer++)
        give(launch, __func__, peer, from, bytes);
    get(launch, (struct taking){.call = __func__, .to = to, .bytes = bytes, .peer = root});
    return closed(launch);
}

// Gives `step` bytes further on to each next rank.
static int everyone(const char *call, const uint8_t *from, size_t step, uint8_t *to, size_t bytes, ncclComm_t comm,
                    CUstream stream) {
    int result;
    struct launch *launch = opened(comm, stream, call, &result);
    if (!launch) return result;
    for (int peer = 0; peer < comm->clique->ranks; peer++) {
        give(launch, call, peer, from + (size_t)peer * step, bytes);
        get(launch, (struct taking){.call = call, .to = to + (size_t)peer * bytes, .bytes = bytes, .peer = peer});
    }
    return closed(launch);
}

int ncclAllGather(const void *from, void *to, size_t count, enum dtype dtype, ncclComm_t comm, CUstream stream) {
    return everyone(__func__, from, 0, to, count * width(dtype), comm, stream);
}

int ncclAlltoAll(const void *from, void *to, size_t count, enum dtype dtype, ncclComm_t comm, CUstream stream) {
    return everyone("ncclAlltoAll", from, count * width(dtype), to, count * width(dtype), comm, stream);
}

int ncclSend(const void *from, size_t count, enum dtype dtype, int peer, ncclComm_t comm, CUstream stream) {
    int result;
    struct launch *launch = opened(comm, stream, __func__, &result);
    if (!launch) return result;
    if (peer < 0 || peer >= comm->clique->ranks) return group_result = refused(INVALID_ARGUMENT, "no such peer");
    give(launch, "message", peer, from, count * width(dtype));
    return closed(launch);
}

int ncclRecv(void *to, size_t count, enum dtype dtype, int peer, ncclComm_t comm, CUstream stream) {
    int result;
    struct launch *launch = opened(comm, stream, __func__, &result);
    if (!launch) return result;
    if (peer < 0 || peer >= comm->clique->ranks) return group_result = refused(INVALID_ARGUMENT, "no such peer");
    get(launch, (struct taking){.call = "message", .to = to, .bytes = count * width(dtype), .peer = peer});
    return closed(launch);
}

// ------------------------------------------------------------------------------------------------------- communicators

static struct clique *new_clique(int ranks) {
    struct clique *clique = calloc(1, sizeof *clique);
    pthread_mutex_init(&clique->lock, NULL);
    pthread_cond_init(&clique->changed, NULL);
    clique->ranks = ranks;
    return clique;
}

static ncclComm_t new_member(struct clique *clique, int rank, const struct config *config) {
    ncclComm_t member = calloc(1, sizeof *member);
    *member = (struct member){.clique = clique, .rank = rank, .device = standin_current()};
    standin_log("communicator %d %s %d/%d ctas %d..%d", member->device, config->name, rank, clique->ranks,
                config->min_ctas == UNDEFINED ? 0 : config->min_ctas,
                config->max_ctas == UNDEFINED ? 0 : config->max_ctas);
    return member;
}

static int valid(const struct config *config) {
    return config->magic == 0xcafebeef && config->size >= sizeof *config && config->blocking == 1;
}

int ncclGetVersion(int *version) {
    const char *text = getenv("STANDIN_NCCL_VERSION");
    *version = text ? atoi(text) : 22809;
    return SUCCESS;
}

int ncclGetUniqueId(ncclUniqueId *id) {
    static int made;
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "stand-in %d", __atomic_add_fetch(&made, 1, __ATOMIC_SEQ_CST));
    return SUCCESS;
}

int ncclCommInitRankConfig(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank, const struct config *config) {
    int device = standin_current();
    if (device < 0 || ranks > MAX_RANKS || rank < 0 || rank >= ranks || !valid(config))
        return refused(INVALID_ARGUMENT, "no current device, a wrong rank, or a wrong configuration");
    if (standin_told(STALL, __func__, device)) standin_stall();
    if (standin_told(FAIL, __func__, device)) return refused(INTERNAL, "the stand-in was told to fail");
    pthread_mutex_lock(&cliques_lock);
    struct clique *clique = cliques;
    while (clique && memcmp(clique->id, id.internal, sizeof clique->id)) clique = clique->next;
    if (!clique) {
        clique = new_clique(ranks);
        memcpy(clique->id, id.internal, sizeof clique->id);
        clique->next = cliques;
        cliques = clique;
    }
    pthread_mutex_unlock(&cliques_lock);
    pthread_mutex_lock(&clique->lock);
    clique->joined++;
    pthread_cond_broadcast(&clique->changed);
    while (clique->joined < ranks) pthread_cond_wait(&clique->changed, &clique->lock);
    pthread_mutex_unlock(&clique->lock);
    *comm = new_member(clique, rank, config);
    return SUCCESS;
}

// Makes a clique of the ranks of each colour, in the order of their keys. The last rank to come does it for all.
static void part(struct clique *whole) {
    for (int rank = 0; rank < whole->ranks; rank++) {
        int size = 0, seat = 0, first = rank;
        for (int other = whole->ranks - 1; other >= 0; other--) {
            if (whole->colours[other] != whole->colours[rank]) continue;
            int before = whole->keys[other] - whole->keys[rank];
            seat += before < 0 || (before == 0 && other < rank);
            size++;
            first = other;
        }
        int none = whole->colours[rank] < 0;
        whole->parts[rank] = none ? NULL : first == rank ? new_clique(size) : whole->parts[first];
        whole->seats[rank] = seat;
    }
    whole->given = 0;
    whole->splits++;
}

int ncclCommSplit(ncclComm_t comm, int colour, int key, ncclComm_t *made, const struct config *config) {
    struct clique *whole = comm->clique;
    if (!valid(config)) return refused(INVALID_ARGUMENT, "a wrong configuration");
    if (standin_told(STALL, __func__, comm->device)) standin_stall();
    if (standin_told(FAIL, __func__, comm->device)) return refused(INTERNAL, "the stand-in was told to fail");
    pthread_mutex_lock(&whole->lock);
    whole->colours[comm->rank] = colour;
    whole->keys[comm->rank] = key;
    int splits = whole->splits;
    if (++whole->given == whole->ranks) {
        part(whole);
        pthread_cond_broadcast(&whole->changed);
    }
    while (whole->splits == splits) pthread_cond_wait(&whole->changed, &whole->lock);
    struct clique *mine = whole->parts[comm->rank];
    int seat = whole->seats[comm->rank];
    pthread_mutex_unlock(&whole->lock);
    *made = mine ? new_member(mine, seat, config) : NULL;
    return SUCCESS;
}

int ncclCommDestroy(ncclComm_t comm) {
    standin_log("destroy %d", comm->device);
    return SUCCESS;
}

int ncclCommAbort(ncclComm_t comm) {
    standin_log("abort %d", comm->device);
    pthread_mutex_lock(&comm->clique->lock);
    comm->aborted = 1;
    pthread_cond_broadcast(&comm->clique->changed);
    pthread_mutex_unlock(&comm->clique->lock);
    return SUCCESS;
}

int ncclCommGetAsyncError(ncclComm_t comm, int *state) {
    pthread_mutex_lock(&comm->clique->lock);
    *state = comm->state;
    pthread_mutex_unlock(&comm->clique->lock);
    return SUCCESS;
}

const char *ncclGetErrorString(int code) {
    switch (code) {
    case SUCCESS: return "no error";
    case UNHANDLED_CUDA: return "unhandled cuda error";
    case INTERNAL: return "internal error";
    case INVALID_ARGUMENT: return "invalid argument";
    case INVALID_USAGE: return "invalid usage";
    case REMOTE: return "remote process exited or there was a network error";
    }
    return "unknown result code";
}

const char *ncclGetLastError(ncclComm_t comm) {
    (void)comm;
    return last_error;
}
