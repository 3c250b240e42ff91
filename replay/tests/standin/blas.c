// A stand-in of cuBLASLt on the stand-in of CUDA: as much of it as the back end `nccl` loads.
//
// It checks that shapes fit each other and that operands lie in the device's memory, and puts a product on the stream
// that computes nothing: nobody looks at the result.

#include "standin.h"

#include <stdlib.h>
#include <string.h>

enum status { SUCCESS = 0, INVALID_VALUE = 7, NOT_SUPPORTED = 15 };
enum { TRANSPOSE_A = 3, TRANSPOSE_B = 4, BATCH_COUNT = 5, BATCH_STRIDE = 6 };

struct layout {
    int type;
    uint64_t rows, columns;
    int batch;
    int64_t stride;
};

struct product {
    int transpose_a, transpose_b;
};

// An algorithm and what is known of it, as large as in cuBLASLt's header.
struct found {
    uint64_t algorithm[8];
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
};

// Bytes an element of a cudaDataType_t.
static size_t width(int type) {
    switch (type) {
    case 1: return 8;            // f64
    case 0: case 10: return 4;   // f32, i32
    case 2: case 14: return 2;   // f16, bf16
    case 3: case 28: return 1;   // i8, e4m3
    }
    return 0;
}

static int fit(const struct product *product, const struct layout *a, const struct layout *b, const struct layout *c) {
    uint64_t m = product->transpose_a ? a->columns : a->rows, k = product->transpose_a ? a->rows : a->columns;
    uint64_t n = product->transpose_b ? b->rows : b->columns, l = product->transpose_b ? b->columns : b->rows;
    return k == l && c->rows == m && c->columns == n && a->batch == b->batch && b->batch == c->batch &&
           width(a->type) && width(a->type) == width(b->type) && width(c->type);
}

static int inside(CUstream stream, const void *at, const struct layout *of) {
    size_t matrix = of->rows * of->columns, batches = (size_t)of->batch - 1;
    return standin_inside(standin_device(stream), at, (batches * (size_t)of->stride + matrix) * width(of->type));
}

static void nothing(void *data) { (void)data; }

size_t cublasLtGetVersion(void) { return 130100; }

int cublasLtCreate(void **handle) {
    *handle = malloc(1);
    return standin_current() < 0 ? INVALID_VALUE : SUCCESS;
}

int cublasLtDestroy(void *handle) {
    free(handle);
    return SUCCESS;
}

int cublasLtMatmulDescCreate(struct product **product, int compute, int scale) {
    (void)compute, (void)scale;
    *product = calloc(1, sizeof **product);
    return SUCCESS;
}

int cublasLtMatmulDescSetAttribute(struct product *product, int attribute, const void *value, size_t bytes) {
    int *field = attribute == TRANSPOSE_A ? &product->transpose_a : &product->transpose_b;
    if ((attribute != TRANSPOSE_A && attribute != TRANSPOSE_B) || bytes != sizeof *field) return INVALID_VALUE;
    memcpy(field, value, bytes);
    return SUCCESS;
}

int cublasLtMatmulDescDestroy(struct product *product) {
    free(product);
    return SUCCESS;
}

int cublasLtMatrixLayoutCreate(struct layout **layout, int type, uint64_t rows, uint64_t columns, int64_t leading) {
    if (leading < (int64_t)rows) return INVALID_VALUE;
    *layout = malloc(sizeof **layout);
    **layout = (struct layout){.type = type, .rows = rows, .columns = columns, .batch = 1};
    return SUCCESS;
}

int cublasLtMatrixLayoutSetAttribute(struct layout *layout, int attribute, const void *value, size_t bytes) {
    void *field = attribute == BATCH_COUNT ? (void *)&layout->batch : (void *)&layout->stride;
    size_t room = attribute == BATCH_COUNT ? sizeof layout->batch : sizeof layout->stride;
    if ((attribute != BATCH_COUNT && attribute != BATCH_STRIDE) || bytes != room) return INVALID_VALUE;
    memcpy(field, value, bytes);
    return SUCCESS;
}

int cublasLtMatrixLayoutDestroy(struct layout *layout) {
    free(layout);
    return SUCCESS;
}

int cublasLtMatmulPreferenceCreate(void **preference) {
    *preference = malloc(1);
    return SUCCESS;
}

int cublasLtMatmulPreferenceSetAttribute(void *preference, int attribute, const void *value, size_t bytes) {
    (void)preference, (void)attribute;
    return value && bytes == sizeof(size_t) ? SUCCESS : INVALID_VALUE;
}

int cublasLtMatmulPreferenceDestroy(void *preference) {
    free(preference);
    return SUCCESS;
}

int cublasLtMatmulAlgoGetHeuristic(void *handle, struct product *product, struct layout *a, struct layout *b,
                                   struct layout *c, struct layout *d, void *preference, int wanted,
                                   struct found *found, int *count) {
    (void)handle, (void)d, (void)preference;
    if (wanted < 1 || !fit(product, a, b, c)) return INVALID_VALUE;
    memset(found, 0, sizeof *found);
    *count = 1;
    return SUCCESS;
}

int cublasLtMatmul(void *handle, struct product *product, const void *alpha, const void *a, struct layout *a_layout,
                   const void *b, struct layout *b_layout, const void *beta, const void *c, struct layout *c_layout,
                   void *d, struct layout *d_layout, const void *algorithm, void *workspace, size_t workspace_bytes,
                   CUstream stream) {
    (void)handle;
    if (!alpha || !beta || !algorithm || c != d || c_layout != d_layout) return INVALID_VALUE;
    if (!fit(product, a_layout, b_layout, c_layout)) return INVALID_VALUE;
    if (!inside(stream, a, a_layout) || !inside(stream, b, b_layout) || !inside(stream, c, c_layout) ||
        !standin_inside(standin_device(stream), workspace, workspace_bytes))
        return INVALID_VALUE;
    return standin_enqueue(stream, __func__, nothing, NULL) ? NOT_SUPPORTED : SUCCESS;
}
