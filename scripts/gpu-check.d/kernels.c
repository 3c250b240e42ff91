/* Records when the kernels of a CUDA program ran, by the ruler of profilers: from a kernel's first thread block on.
 *
 * The driver loads this library where CUDA_INJECTION64_PATH names it. It writes a line a kernel to GPU_CHECK_KERNELS:
 *
 *     device,stream,start in ns,end in ns,name
 *
 * CUPTI puts the times of all devices of a process on one clock. Kernels whose names lack the text of
 * GPU_CHECK_KERNELS_OF, where it is set, are left out. Lines that begin with # are remarks; the last one of a complete
 * file is "# end". kernels.py compiles this and reads the file.
 */

#include <cupti.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The record of a kernel in the CUPTI at hand; kernels.py takes it from its header. All newer ones begin like this. */
#ifndef KERNEL
#define KERNEL CUpti_ActivityKernel9
#endif

enum { BUFFER = 4 << 20 };

static FILE *file;
static const char *part_of_name;
static size_t lost;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Whether a call succeeded; one that did not becomes a remark. */
static int ok(const char *call, CUptiResult result)
{
    const char *why = "unknown";

    if (result == CUPTI_SUCCESS)
        return 1;
    cuptiGetResultString(result, &why);
    pthread_mutex_lock(&lock);
    if (file) {
        fprintf(file, "# %s: %s\n", call, why);
        fflush(file);
    }
    pthread_mutex_unlock(&lock);
    return 0;
}

/* CUPTI wants memory for records. */
static void CUPTIAPI give_buffer(uint8_t **buffer, size_t *size, size_t *most_records)
{
    *buffer = malloc(BUFFER);
    *size = *buffer ? BUFFER : 0;
    *most_records = 0;
}

static void write_kernel(const KERNEL *kernel)
{
    const char *name = kernel->name ? kernel->name : "";

    /* A kernel that has not ended yet has no times. */
    if (kernel->end == 0 || (part_of_name && !strstr(name, part_of_name)))
        return;
    fprintf(file, "%" PRIu32 ",%" PRIu32 ",%" PRIu64 ",%" PRIu64 ",%s\n", kernel->deviceId, kernel->streamId,
            kernel->start, kernel->end, name);
}

/* CUPTI gives memory back, with records in it. */
static void CUPTIAPI take_buffer(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid)
{
    CUpti_Activity *record = NULL;
    size_t dropped = 0;

    (void)size;
    pthread_mutex_lock(&lock);
    while (file && valid > 0 && cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS)
        if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL)
            write_kernel((const KERNEL *)record);
    if (cuptiActivityGetNumDroppedRecords(context, stream, &dropped) == CUPTI_SUCCESS)
        lost += dropped;
    pthread_mutex_unlock(&lock);
    free(buffer);
}

/* A context is about to go, and with it records that were not fetched. */
static void CUPTIAPI before_context_goes(void *user, CUpti_CallbackDomain domain, CUpti_CallbackId id, const void *data)
{
    (void)user, (void)id;
    if (domain == CUPTI_CB_DOMAIN_DRIVER_API && ((const CUpti_CallbackData *)data)->callbackSite == CUPTI_API_ENTER)
        ok("cuptiActivityFlushAll", cuptiActivityFlushAll(0));
}

static void at_end(void)
{
    ok("cuptiActivityFlushAll", cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED));
    pthread_mutex_lock(&lock);
    if (file) {
        if (lost)
            fprintf(file, "# %zu records were lost\n", lost);
        fputs("# end\n", file);
        fclose(file);
        file = NULL;
    }
    pthread_mutex_unlock(&lock);
}

/* The driver calls this when it is initialized. The program goes on whatever happens here. */
int InitializeInjection(void);
int InitializeInjection(void)
{
    static const CUpti_CallbackId ends[] = {
        CUPTI_DRIVER_TRACE_CBID_cuCtxDestroy_v2,           CUPTI_DRIVER_TRACE_CBID_cuDevicePrimaryCtxRelease,
        CUPTI_DRIVER_TRACE_CBID_cuDevicePrimaryCtxReset,   CUPTI_DRIVER_TRACE_CBID_cuDevicePrimaryCtxRelease_v2,
        CUPTI_DRIVER_TRACE_CBID_cuDevicePrimaryCtxReset_v2,
    };
    const char *path = getenv("GPU_CHECK_KERNELS");
    CUpti_SubscriberHandle subscriber;

    if (file || !path || !(file = fopen(path, "w")))
        return 1;
    part_of_name = getenv("GPU_CHECK_KERNELS_OF");
    if (!ok("cuptiActivityRegisterCallbacks", cuptiActivityRegisterCallbacks(give_buffer, take_buffer)) ||
        !ok("cuptiActivityEnable", cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL)))
        return 1;
    if (ok("cuptiSubscribe", cuptiSubscribe(&subscriber, before_context_goes, NULL)))
        for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
            ok("cuptiEnableCallback", cuptiEnableCallback(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API, ends[i]));
    atexit(at_end);
    return 1;
}
