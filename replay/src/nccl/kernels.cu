// The kernels of the NCCL back end. kernels.ptx is what NVRTC makes of this file; the test
// `the_checked_in_ptx_is_what_its_source_compiles_to` makes it anew.

typedef unsigned long long u64;

static __device__ __forceinline__ u64 now() {
    u64 ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
}

// Begin and count of the timed kernel that runs on a lane. Kernels of one lane follow each other, so one slot a lane is
// enough; the last block of each leaves it as it found it.
struct Slot {
    u64 begin;
    unsigned int done;
};

// When the kernel began: when the first of its blocks came here.
static __device__ __forceinline__ u64 begin_of(Slot* slot) {
    const u64 arrived = now();
    const u64 begun = atomicCAS(&slot->begin, 0ull, arrived);
    return begun == 0 ? arrived : begun;
}

// The block leaves. Every block has read `begin` before it counts itself, so the last to count may clear it.
static __device__ __forceinline__ void leave(Slot* slot) {
    __threadfence();
    if (atomicInc(&slot->done, gridDim.x - 1) == gridDim.x - 1) slot->begin = 0;
}

// Reads `vectors` vectors of 16 bytes and writes as many: what element-wise work does to memory. Each block moves its
// 2,048 and leaves, so that other kernels get multiprocessors as beside real work. With `ns`, block i of n does not leave
// before i + 1 n-ths of these nanoseconds: the kernel moves its bytes evenly over that time.
extern "C" __global__ void __launch_bounds__(512)
    maestro_stream(const uint4* from, uint4* to, u64 vectors, u64 ns, Slot* slot) {
    u64 begun = 0;
    if (ns && threadIdx.x == 0) begun = begin_of(slot);
    const u64 i = (u64)blockIdx.x * 2048 + threadIdx.x;
    if (i + 1536 < vectors) {
        uint4 a = from[i];
        uint4 b = from[i + 512];
        uint4 c = from[i + 1024];
        uint4 d = from[i + 1536];
        to[i] = a;
        to[i + 512] = b;
        to[i + 1024] = c;
        to[i + 1536] = d;
    } else {
        for (u64 j = i; j < vectors; j += 512) to[j] = from[j];
    }
    if (ns && threadIdx.x == 0) {
        const u64 end = begun + ns * (blockIdx.x + 1) / gridDim.x;
        while (now() < end) {
        }
        leave(slot);
    }
}

// Keeps multiprocessors busy until `ns` nanoseconds after its first block began. Each block asks for all shared memory
// of a multiprocessor, so it has one for itself. The first `passing` blocks leave after `quantum` nanoseconds and others
// take their place, as the blocks of a real kernel do: whatever waits for a multiprocessor gets one then. The rest stay
// to the end.
extern "C" __global__ void __launch_bounds__(32) maestro_hold(u64 ns, u64 quantum, u64 passing, Slot* slot) {
    if (threadIdx.x != 0) return;
    const u64 arrived = now();
    const u64 end = begin_of(slot) + ns;
    const u64 until = blockIdx.x < passing && arrived + quantum < end ? arrived + quantum : end;
    while (now() < until) {
    }
    leave(slot);
}

static __device__ __forceinline__ u64 mixed(u64 x) {
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

// Fills `words` words of 8 bytes with four bf16 values each, distributed about as a normal distribution: what training
// multiplies. Their bytes are also finite as two f32, as f16, as 8-bit floats (no byte is a NaN or an infinity of
// either) and as one f64.
extern "C" __global__ void __launch_bounds__(256) maestro_fill(u64* to, u64 words, u64 seed) {
    const u64 stride = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < words; i += stride) {
        u64 word = 0;
        for (int part = 0; part < 4; part++) {
            u64 r = mixed(seed + 4 * i + part);
            // The sum of four uniform numbers, with the variance of one: near enough to normal.
            float sum = (float)(r & 0xffff) + (float)(r >> 16 & 0xffff) + (float)(r >> 32 & 0xffff) + (float)(r >> 48);
            float value = (sum - 131070.0f) * (1.7320508f / 65535.0f);
            unsigned int bits = __float_as_uint(value) >> 16;
            if ((bits & 0x7f) >= 0x78) bits ^= 0x40;
            word |= (u64)bits << (16 * part);
        }
        to[i] = word;
    }
}
