// What the convolution kernels share: bf16 in registers, wgmma, and sums over thread blocks.
//
// Every activation is a channels-last bf16 tensor. A thread moves it in items of 8 channels
// (16 bytes); a tensor of C channels has C / 8 such chunks a pixel.

typedef unsigned int u32;
typedef unsigned long long u64;
typedef unsigned short bf16;

#define INLINE __device__ __forceinline__

INLINE float low_half(u32 pair) { return __uint_as_float(pair << 16); }
INLINE float high_half(u32 pair) { return __uint_as_float(pair & 0xffff0000u); }

INLINE u32 pack(float low, float high) {
    u32 pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

INLINE void unpack(const uint4& item, float (&v)[8]) {
    v[0] = low_half(item.x), v[1] = high_half(item.x);
    v[2] = low_half(item.y), v[3] = high_half(item.y);
    v[4] = low_half(item.z), v[5] = high_half(item.z);
    v[6] = low_half(item.w), v[7] = high_half(item.w);
}

INLINE uint4 pack(const float (&v)[8]) {
    return make_uint4(pack(v[0], v[1]), pack(v[2], v[3]), pack(v[4], v[5]), pack(v[6], v[7]));
}

INLINE uint4 load_item(const bf16* p) { return *reinterpret_cast<const uint4*>(p); }
INLINE void store_item(bf16* p, const uint4& item) { *reinterpret_cast<uint4*>(p) = item; }

INLINE void load8(const float* p, float (&v)[8]) {
    float4 a = *reinterpret_cast<const float4*>(p), b = *reinterpret_cast<const float4*>(p + 4);
    v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w;
    v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
}

// v = leaky(scale·v + shift)
INLINE void activate(float (&v)[8], const float (&scale)[8], const float (&shift)[8], float slope) {
#pragma unroll
    for (int c = 0; c < 8; c++) {
        float u = fmaf(v[c], scale[c], shift[c]);
        v[c] = fmaxf(u, slope * u);
    }
}

INLINE u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }

// Tells the compiler that all lanes hold the same value; descriptors then are uniform registers.
INLINE int uniform(int value) { return __shfl_sync(0xffffffffu, value, 0); }

INLINE void team_barrier(int id, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// Copies 16 bytes to shared memory in the background; zeros where not `inside`.
INLINE void copy_item(char* to, const bf16* from, bool inside) {
    int bytes = inside ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)),
                 "l"(from), "r"(bytes)
                 : "memory");
}
INLINE void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most LATER of the committed groups are under way.
template <int LATER>
INLINE void copy_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(LATER) : "memory");
}

// Makes ordinary shared-memory stores visible to wgmma; every writer calls it before the barrier.
INLINE void publish_to_wgmma() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

INLINE void wgmma_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
INLINE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
INLINE void wgmma_wait() { asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory"); }

template <int N>
INLINE void pin(float (&v)[N]) {
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+f"(v[i])::"memory");
}

// A matrix in shared memory without swizzle: pieces of 8 × 16 bytes that lie contiguously. `lead`
// and `stride` are the bytes from piece to piece: along K and along M or N where K is contiguous in
// a piece; where M or N is, `lead` still steps along K and `stride` along M or N.
INLINE u64 describe(u32 address, u32 lead, u32 stride) {
    return (u64)(address >> 4) | ((u64)(lead >> 4) << 16) | ((u64)(stride >> 4) << 32);
}

// Lane q of four hands its k-th pair to lane k and gets lane k's q-th: the accumulator's columns,
// two to a lane, become 8 neighbouring channels of one lane.
INLINE void transpose_quad(u32 (&r)[4], int lane) {
    bool odd = lane & 1, upper = lane & 2;
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
        u32 got = __shfl_xor_sync(0xffffffffu, odd ? r[i] : r[i + 1], 1);
        if (odd) r[i] = got; else r[i + 1] = got;
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        u32 got = __shfl_xor_sync(0xffffffffu, upper ? r[i] : r[i + 2], 2);
        if (upper) r[i] = got; else r[i + 2] = got;
    }
}

// Four 8 × 8 pieces of shared memory as wgmma's A in registers, transposed. A lane gives the
// address of one row of 8 (the rows of piece 0 come from lanes 0 to 7, and so on).
INLINE void load_transposed(u32 (&a)[4], u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
                 : "r"(address)
                 : "memory");
}

// A kernel may begin while the one before it ends. Before `after_previous` it may only touch what
// was there two kernels ago.
INLINE void after_previous() {
    asm volatile("griddepcontrol.wait;" ::: "memory");
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// out[0..WIDTH) = the sum over `parts` rows of WIDTH floats, in a fixed order. All threads call it;
// `scratch` holds 4·THREADS floats. Ends with a barrier.
template <int WIDTH, int THREADS>
INLINE void add_parts(const float* source, int parts, float* scratch, float* out) {
    constexpr int LANES = WIDTH / 4, SLICES = THREADS / LANES;
    int lane = threadIdx.x % LANES, slice = threadIdx.x / LANES;
    float4 sum = make_float4(0.f, 0.f, 0.f, 0.f);
    if (slice < SLICES) {
        // Twelve at a time, whether they exist or not: a loop over the rest would wait for each.
        for (int first = slice; first < parts; first += 12 * SLICES) {
            float4 v[12];
#pragma unroll
            for (int u = 0; u < 12; u++) {
                int part = first + u * SLICES;
                v[u] = make_float4(0.f, 0.f, 0.f, 0.f);
                if (part < parts)
                    v[u] = *reinterpret_cast<const float4*>(source + part * WIDTH + 4 * lane);
            }
#pragma unroll
            for (int u = 0; u < 12; u++)
                sum.x += v[u].x, sum.y += v[u].y, sum.z += v[u].z, sum.w += v[u].w;
        }
        *reinterpret_cast<float4*>(scratch + 4 * threadIdx.x) = sum;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < WIDTH; i += THREADS) {
        float total = 0.f;
#pragma unroll
        for (int s = 0; s < SLICES; s++) total += scratch[s * WIDTH + i];
        out[i] = total;
    }
    __syncthreads();
}

// BatchNorm's state of a tensor: mean, 1 / standard deviation, scale, shift, and the unbiased
// variance that running statistics take; C floats each. From sums over all its elements (of values,
// then of squares) to the first four in shared memory; the first block writes out all five. Ends
// with a barrier.
template <int C, int THREADS>
INLINE void finish_statistics(const float* sums, float count, const float* gamma, const float* beta,
                              float eps, float* norm_out, float* norm) {
    for (int c = threadIdx.x; c < C; c += THREADS) {
        float mean = sums[c] / count;
        float variance = fmaxf(sums[C + c] / count - mean * mean, 0.f);
        float rstd = rsqrtf(variance + eps);
        float scale = gamma[c] * rstd, shift = beta[c] - mean * scale;
        norm[c] = mean, norm[C + c] = rstd, norm[2 * C + c] = scale, norm[3 * C + c] = shift;
        if (blockIdx.x == 0) {
            norm_out[c] = mean, norm_out[C + c] = rstd;
            norm_out[2 * C + c] = scale, norm_out[3 * C + c] = shift;
            norm_out[4 * C + c] = variance * count / fmaxf(count - 1.f, 1.f);
        }
    }
    __syncthreads();
}
