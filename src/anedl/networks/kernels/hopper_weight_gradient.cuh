// Weight gradient of a 3×3 convolution with stride 1, by wgmma: for each tap, the output's gradient
// (co × pixels, from registers) times the activated input (pixels × ci, from shared memory).
//
// The input lies in shared memory as in the forward kernel, so a tap is again an address. Three
// groups of 128 threads share a tile; while the products of one tile run, the next is activated and
// others are on their way from global memory. A block leaves its part of the sum over pixels;
// `add_weight_parts` adds the parts up, in a fixed order.

struct WeightArguments {
    const bf16 *z, *gradient, *branch_gradient;
    const float* norm;
    float slope;
    float* parts;
    int images;
};

constexpr int GROUPS_3 = 384;  // threads of a block
// How many tiles are on their way from global memory, the current one included. They arrive in
// places of the threads' own, one item behind the other: background copies to scattered places
// would fetch twice as much.
constexpr int ENOUGH_STAGES = 3;

// 64 × 64 channels a block; each group takes the three taps of one kernel row. A tile is a strip of
// 8 rows, or two images of 8 × 8. With 128 channels four blocks share a tile.
template <int C, int W>
struct WideWeights {
    static constexpr int THREADS = GROUPS_3, MB = 64, CHUNKS = 8;
    static constexpr int SIDES = C / MB, QUARTERS = SIDES * SIDES;
    static constexpr int IMAGES = W == 8 ? 2 : 1, STRIPS = W / 8, BLOCKS = IMAGES * W / 8;
    static constexpr int BORDER = W > 8;
    static constexpr int PITCH = W + 1, IMAGE = 10 * PITCH + 1;
    static constexpr int ITEMS = W * CHUNKS, AT_ONCE = 128 / ITEMS;
    static constexpr int A_UNITS = IMAGES * (8 + 2 * BORDER) / AT_ONCE;
    static constexpr int D_UNITS = IMAGES * 8 / AT_ONCE;
    static constexpr int A_PASSES = (A_UNITS + 2) / 3, D_PASSES = (D_UNITS + 2) / 3;
    static constexpr int A_PLANE = (IMAGES * IMAGE * 16 + 111) / 128 * 128 + 16;
    static constexpr int D_PLANE = IMAGES * 8 * W * 16 + 16;
    static constexpr int A_BYTES = CHUNKS * A_PLANE, D_BYTES = CHUNKS * D_PLANE;
    static constexpr int STAGES = ENOUGH_STAGES, RAW_BYTES = (A_PASSES + D_PASSES) * GROUPS_3 * 16;
    static constexpr int SHARED = 2 * (A_BYTES + D_BYTES) + STAGES * RAW_BYTES;
    static constexpr int FLOATS = 96, COLUMNS = 8;  // of a thread; of a product, in eights

    static INLINE void run(const WeightArguments& q) {
        extern __shared__ __align__(128) char shared[];
        char* d_tiles = shared + 2 * A_BYTES;
        char* raw = d_tiles + 2 * D_BYTES;
        int quarter = blockIdx.x % QUARTERS, block = blockIdx.x / QUARTERS;
        int blocks = gridDim.x / QUARTERS;
        int side_a = quarter % SIDES * MB, side_d = quarter / SIDES * MB;
        int group = uniform(threadIdx.x / 128), t = threadIdx.x % 128, lane = t % 32, warp = t / 32;
        int chunk = t % CHUNKS, column = t / CHUNKS % W;
        int row0 = group * AT_ONCE + t / ITEMS;  // of the first of this thread's items
        int tiles_all = q.images * STRIPS / IMAGES;

        const bf16* a_from = q.z + side_a + ((row0 - BORDER) * W + column) * C + chunk * 8;
        const bf16* d_from = q.gradient + side_d + (row0 * W + column) * C + chunk * 8;
        char* raw_to = raw + threadIdx.x * 16;
        char* d_to = d_tiles + chunk * D_PLANE + (row0 * W + column) * 16;
        constexpr int STEP = 3 * AT_ONCE * W;  // pixels from item to item of a thread
        auto fetch = [&](int index, int stage) {
            if (index < tiles_all) {
                int top = index * 8 * IMAGES;  // row of the tile, counted through all images
                const bf16* a = a_from + top * (W * C);
                const bf16* d = d_from + top * (W * C);
#pragma unroll
                for (int i = 0; i < A_PASSES; i++) {
                    bool inside = !BORDER || (unsigned)(top % W + row0 + 3 * AT_ONCE * i - 1) < W;
                    if (i * 3 + 2 < A_UNITS || i * 3 + group < A_UNITS)
                        copy_item(raw_to + stage * RAW_BYTES + i * GROUPS_3 * 16,
                                  inside ? a + i * STEP * C : q.z, inside);
                }
#pragma unroll
                for (int i = 0; i < D_PASSES; i++)
                    if (i * 3 + 2 < D_UNITS || i * 3 + group < D_UNITS)
                        copy_item(raw_to + stage * RAW_BYTES + (A_PASSES + i) * GROUPS_3 * 16,
                                  d + i * STEP * C, true);
            }
            copy_commit();
        };
        float scale[8], shift[8];
        auto place = [&](int index, int stage, int turn) {
            int top = index * 8 * IMAGES;
            char* tile = shared + turn * A_BYTES;
            char* from = raw_to + stage * RAW_BYTES;
#pragma unroll
            for (int i = 0; i < D_PASSES; i++)
                if (i * 3 + 2 < D_UNITS || i * 3 + group < D_UNITS)
                    *reinterpret_cast<uint4*>(d_to + turn * D_BYTES + i * STEP * 16) =
                        *reinterpret_cast<uint4*>(from + (A_PASSES + i) * GROUPS_3 * 16);
#pragma unroll
            for (int i = 0; i < A_PASSES; i++) {
                if (!(i * 3 + 2 < A_UNITS || i * 3 + group < A_UNITS)) continue;
                int row = row0 + 3 * AT_ONCE * i;
                uint4 item = *reinterpret_cast<uint4*>(from + i * GROUPS_3 * 16);
                if (!BORDER || (unsigned)(top % W + row - 1) < W) {
                    float v[8];
                    unpack(item, v);
                    activate(v, scale, shift, q.slope);
                    item = pack(v);
                }
                int pixel = BORDER ? row * PITCH + column + 1
                                   : row / 8 * IMAGE + (row % 8 + 1) * PITCH + column + 1;
                *reinterpret_cast<uint4*>(tile + chunk * A_PLANE + pixel * 16) = item;
            }
        };

        for (int i = threadIdx.x; i < 2 * A_BYTES / 16; i += GROUPS_3)
            reinterpret_cast<uint4*>(shared)[i] = make_uint4(0, 0, 0, 0);
        after_previous();
        int index = block;
#pragma unroll
        for (int stage = 0; stage < STAGES - 1; stage++) fetch(index + stage * blocks, stage);
        load8(q.norm + 2 * C + side_a + chunk * 8, scale);
        load8(q.norm + 3 * C + side_a + chunk * 8, shift);
        float acc[3][MB / 2];
#pragma unroll
        for (int p = 0; p < 3; p++)
#pragma unroll
            for (int i = 0; i < MB / 2; i++) acc[p][i] = 0.f;
        __syncthreads();

        u32 d_lane = shared_address(d_tiles) + (2 * warp + lane / 8 % 2) * D_PLANE +
                     (lane / 16 * W + lane % 8) * 16;
        int stage = 0, turn = 0;
        for (; index < tiles_all; index += blocks) {
            char* tile = shared + turn * A_BYTES;
            copy_wait<STAGES - 2>();
            place(index, stage, turn);  // while the last tile's products run
            publish_to_wgmma();
            wgmma_wait();
            __syncthreads();
            u64 a_base = describe(shared_address(tile), PITCH * 16, A_PLANE) + group * PITCH;
#pragma unroll
            for (int p = 0; p < 3; p++) pin(acc[p]);
            u32 d[BLOCKS * 4][4];
#pragma unroll
            for (int s = 0; s < BLOCKS * 4; s++) {
                int pixel = (IMAGES > 1 ? s / 4 * 8 * W : s / 4 * 8) + s % 4 * 2 * W;
                load_transposed(d[s], d_lane + turn * D_BYTES + pixel * 16);
            }
            wgmma_begin();
#pragma unroll
            for (int s = 0; s < BLOCKS * 4; s++) {
                int pixel = (IMAGES > 1 ? s / 4 * IMAGE : s / 4 * 8) + s % 4 * 2 * PITCH;
#pragma unroll
                for (int p = 0; p < 3; p++) wgmma(acc[p], d[s], a_base + pixel + p);
            }
            wgmma_commit();
            int free = stage == 0 ? STAGES - 1 : stage - 1;
            fetch(index + (STAGES - 1) * blocks, free);
            stage = stage == STAGES - 1 ? 0 : stage + 1;
            turn ^= 1;
        }
        wgmma_wait();
        float4* to = reinterpret_cast<float4*>(q.parts) +
                     (quarter * blocks + block) * (FLOATS / 4 * GROUPS_3) + threadIdx.x;
#pragma unroll
        for (int p = 0; p < 3; p++) {
            pin(acc[p]);
#pragma unroll
            for (int i = 0; i < MB / 8; i++)
                to[(p * MB / 8 + i) * GROUPS_3] = make_float4(acc[p][4 * i], acc[p][4 * i + 1],
                                                              acc[p][4 * i + 2], acc[p][4 * i + 3]);
        }
    }

    // Where value (m, n) of product p of a thread's group belongs.
    static INLINE void put(float value, int quarter, int group, int p, int m, int n, float* out,
                           float* branch) {
        int co = quarter / SIDES * MB + m, ci = quarter % SIDES * MB + n;
        out[(co * 9 + group * 3 + p) * C + ci] = value;
    }
};

// Fewer than 64 channels, at 32 × 32. The input lies in shared memory row by row, chunk by chunk
// within a row, so that the chunks of three image rows are neighbours: a product's columns are the
// input channels of all three kernel rows. Its 64 rows are the gradient's channels, shifted by the
// kernel column, a kind of them to each warp or pair of warps:
//
// NARROW_32: 32 channels; product 0 has kernel columns 0 and 2, product 1 column 1 (and a rest).
// NARROW_BRANCH: the same with 16 input channels, and the 1×1 branch's gradient as that rest.
// NARROW_STEM: 16 channels; the only product has all three columns (and a rest). Raw input.
//
// Four groups of 128 threads share the products and the tile's rows out among each other.
enum Narrow { NARROW_32, NARROW_BRANCH, NARROW_STEM };

template <Narrow KIND>
struct NarrowWeights {
    static constexpr int W = 32, STRIPS = 4, QUARTERS = 1, GROUPS = 4, THREADS = 512;
    static constexpr int CI = KIND == NARROW_32 ? 32 : KIND == NARROW_BRANCH ? 16 : 8;
    static constexpr int CD = KIND == NARROW_STEM ? 16 : 32;
    static constexpr int SOURCES = KIND == NARROW_BRANCH ? 2 : 1;
    static constexpr int PRODUCTS = KIND == NARROW_STEM ? 1 : 2, SHARES = GROUPS / PRODUCTS;
    static constexpr int LINES = 8 / SHARES;  // of a group
    static constexpr int A_CHUNKS = CI / 8, A_ITEMS = W * A_CHUNKS, A_AT_ONCE = THREADS / A_ITEMS;
    static constexpr int D_CHUNKS = CD / 8, D_ITEMS = W * D_CHUNKS, D_AT_ONCE = THREADS / D_ITEMS;
    static constexpr int A_PASSES = (10 + A_AT_ONCE - 1) / A_AT_ONCE;
    static constexpr int D_PASSES = (8 + D_AT_ONCE - 1) / D_AT_ONCE;
    static constexpr int A_CHUNK = W * 16 + 128 / A_CHUNKS;  // bytes of a row's chunk
    static constexpr int PITCH = W + 1;                      // the gradient's rows share a border
    static constexpr int D_PLANE = ((8 * PITCH + 1) * 16 + 127) / 128 * 128 + 128 / D_CHUNKS;
    static constexpr int A_BYTES = 10 * A_CHUNKS * A_CHUNK, D_BYTES = SOURCES * D_CHUNKS * D_PLANE;
    static constexpr int STAGES = KIND == NARROW_BRANCH ? 2 : ENOUGH_STAGES;
    static constexpr int RAW_BYTES = (A_PASSES + SOURCES * D_PASSES) * THREADS * 16;
    static constexpr int FLOATS = 3 * CI / 2, COLUMNS = 3 * A_CHUNKS;  // of a thread; in eights
    static constexpr int TILES = 2 * (A_BYTES + D_BYTES) + STAGES * RAW_BYTES;
    static constexpr int ADDING = THREADS * FLOATS * 4;
    static constexpr int SHARED = TILES > ADDING ? TILES : ADDING;

    static INLINE void run(const WeightArguments& q) {
        extern __shared__ __align__(128) char shared[];
        char* d_tiles = shared + 2 * A_BYTES;
        char* raw = d_tiles + 2 * D_BYTES;
        int block = blockIdx.x, blocks = gridDim.x, tiles_all = q.images * STRIPS;
        int group = uniform(threadIdx.x / 128), t = threadIdx.x % 128, lane = t % 32, warp = t / 32;
        int a_chunk = threadIdx.x % A_CHUNKS, a_column = threadIdx.x / A_CHUNKS % W;
        int a_row = threadIdx.x / A_ITEMS;
        int d_chunk = threadIdx.x % D_CHUNKS, d_column = threadIdx.x / D_CHUNKS % W;
        int d_row = threadIdx.x / D_ITEMS;

        const bf16* a_from = q.z + ((a_row - 1) * W + a_column) * CI + a_chunk * 8;
        int d_offset = (d_row * W + d_column) * CD + d_chunk * 8;
        char* raw_to = raw + threadIdx.x * 16;
        char* d_to = d_tiles + d_chunk * D_PLANE + (d_row * PITCH + d_column + 1) * 16;
        auto fetch = [&](int index, int stage) {
            if (index < tiles_all) {
                int top = index * 8;  // row of the tile, counted through all images
                const bf16* a = a_from + top * (W * CI);
#pragma unroll
                for (int i = 0; i < A_PASSES; i++) {
                    int row = a_row + i * A_AT_ONCE;
                    bool inside = (unsigned)(top % W + row - 1) < W;
                    if (10 % A_AT_ONCE == 0 || row < 10)
                        copy_item(raw_to + stage * RAW_BYTES + i * THREADS * 16,
                                  inside ? a + i * A_AT_ONCE * W * CI : q.z, inside);
                }
#pragma unroll
                for (int source = 0; source < SOURCES; source++) {
                    const bf16* d = (source ? q.branch_gradient : q.gradient) + d_offset;
#pragma unroll
                    for (int i = 0; i < D_PASSES; i++)
                        copy_item(raw_to + stage * RAW_BYTES +
                                      (A_PASSES + source * D_PASSES + i) * THREADS * 16,
                                  d + (top + i * D_AT_ONCE) * (W * CD), true);
                }
            }
            copy_commit();
        };
        float scale[8], shift[8];
        auto place = [&](int index, int stage, int turn) {
            int top = index * 8;
            char* tile = shared + turn * A_BYTES;
            char* from = raw_to + stage * RAW_BYTES;
#pragma unroll
            for (int i = 0; i < SOURCES * D_PASSES; i++)
                *reinterpret_cast<uint4*>(d_to + turn * D_BYTES +
                                          i / D_PASSES * D_CHUNKS * D_PLANE +
                                          i % D_PASSES * D_AT_ONCE * PITCH * 16) =
                    *reinterpret_cast<uint4*>(from + (A_PASSES + i) * THREADS * 16);
#pragma unroll
            for (int i = 0; i < A_PASSES; i++) {
                int row = a_row + i * A_AT_ONCE;
                if (10 % A_AT_ONCE && row >= 10) continue;
                uint4 item = *reinterpret_cast<uint4*>(from + i * THREADS * 16);
                if (KIND != NARROW_STEM && (unsigned)(top % W + row - 1) < W) {
                    float v[8];
                    unpack(item, v);
                    activate(v, scale, shift, q.slope);
                    item = pack(v);
                }
                char* to = tile + (row * A_CHUNKS + a_chunk) * A_CHUNK + a_column * 16;
                *reinterpret_cast<uint4*>(to) = item;
            }
        };

        for (int i = threadIdx.x; i < 2 * D_BYTES / 16; i += THREADS)
            reinterpret_cast<uint4*>(d_tiles)[i] = make_uint4(0, 0, 0, 0);
        __syncthreads();
        after_previous();
        int index = block;
#pragma unroll
        for (int stage = 0; stage < STAGES - 1; stage++) fetch(index + stage * blocks, stage);
        if (KIND != NARROW_STEM) {
            load8(q.norm + 2 * CI + a_chunk * 8, scale);
            load8(q.norm + 3 * CI + a_chunk * 8, shift);
        }
        float acc[FLOATS];
#pragma unroll
        for (int i = 0; i < FLOATS; i++) acc[i] = 0.f;

        // What this warp's 16 rows are: chunks of which source, moved how far.
        int product = group % PRODUCTS, line0 = group / PRODUCTS * LINES;
        int source = KIND == NARROW_BRANCH && product == 1 ? warp / 2 : 0;
        int chunk = KIND == NARROW_STEM ? 0 : warp % 2 * 2;
        int moved = KIND == NARROW_STEM ? (warp == 3 ? 0 : 1 - warp)
                    : product == 1      ? 0
                                        : 1 - warp / 2 * 2;
        u32 d_lane = shared_address(d_tiles) +
                     (source * D_CHUNKS + chunk + lane / 8 % 2) * D_PLANE +
                     (line0 * PITCH + 1 + moved + lane / 16 * 8 + lane % 8) * 16;
        int stage = 0, turn = 0;
        for (; index < tiles_all; index += blocks) {
            char* tile = shared + turn * A_BYTES;
            copy_wait<STAGES - 2>();
            place(index, stage, turn);  // while the last tile's products run
            publish_to_wgmma();
            wgmma_wait();
            __syncthreads();
            u64 a_base = describe(shared_address(tile) + line0 * A_CHUNKS * A_CHUNK, 128, A_CHUNK);
            pin(acc);
            u32 d[LINES * 2][4];
#pragma unroll
            for (int s = 0; s < LINES * 2; s++)
                load_transposed(d[s], d_lane + turn * D_BYTES + (s / 2 * PITCH + s % 2 * 16) * 16);
            wgmma_begin();
#pragma unroll
            for (int s = 0; s < LINES * 2; s++)
                wgmma(acc, d[s], a_base + s / 2 * A_CHUNKS * A_CHUNK / 16 + s % 2 * 16);
            wgmma_commit();
            int free = stage == 0 ? STAGES - 1 : stage - 1;
            fetch(index + (STAGES - 1) * blocks, free);
            stage = stage == STAGES - 1 ? 0 : stage + 1;
            turn ^= 1;
        }
        wgmma_wait();
        pin(acc);
        copy_wait<0>();
        __syncthreads();
        // The groups that share a product add up: (GROUPS, FLOATS / 4, 128).
        float4* between = reinterpret_cast<float4*>(shared);
#pragma unroll
        for (int i = 0; i < FLOATS / 4; i++)
            between[(group * (FLOATS / 4) + i) * 128 + t] =
                make_float4(acc[4 * i], acc[4 * i + 1], acc[4 * i + 2], acc[4 * i + 3]);
        __syncthreads();
        if (group >= PRODUCTS) return;
        float4* to = reinterpret_cast<float4*>(q.parts) +
                     block * (FLOATS / 4 * 128 * PRODUCTS) + threadIdx.x;
#pragma unroll
        for (int i = 0; i < FLOATS / 4; i++) {
            float4 sum = make_float4(0.f, 0.f, 0.f, 0.f);
#pragma unroll
            for (int share = 0; share < SHARES; share++) {
                float4 v = between[((share * PRODUCTS + group) * (FLOATS / 4) + i) * 128 + t];
                sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
            }
            to[i * 128 * PRODUCTS] = sum;
        }
    }

    // Where value (m, n) of a group belongs: n counts kernel rows and input channels.
    static INLINE void put(float value, int quarter, int group, int p, int m, int n, float* out,
                           float* branch) {
        int kernel_row = n / CI, ci = n % CI;
        if (KIND == NARROW_STEM) {
            if (m < 48 && ci < 3) out[(m % 16 * 9 + kernel_row * 3 + m / 16) * 3 + ci] = value;
        } else if (group == 0) {
            out[(m % 32 * 9 + kernel_row * 3 + m / 32 * 2) * CI + ci] = value;
        } else if (m < 32) {
            out[(m * 9 + kernel_row * 3 + 1) * CI + ci] = value;
        } else if (KIND == NARROW_BRANCH && kernel_row == 1) {
            branch[(m - 32) * CI + ci] = value;
        }
    }
};

// Adds up what `parts` blocks left, each thread's values as it left them, and puts the sums in
// their places. A block of 256 threads takes 32 groups of 4 values, 8 threads a group.
template <typename Weights, int THREADS>
INLINE void add_weight_parts(const float* source, float* out, float* branch, int parts) {
    constexpr int QUADS = Weights::FLOATS / 4 * THREADS;
    __shared__ float4 scratch[256];
    after_previous();
    int lane = threadIdx.x % 32, slice = threadIdx.x / 32;
    int at = blockIdx.x * 32 + lane, quarter = at / QUADS, quad = at % QUADS;
    const float4* from = reinterpret_cast<const float4*>(source) + quarter * parts * QUADS + quad;
    float4 sum = make_float4(0.f, 0.f, 0.f, 0.f);
    for (int first = slice; first < parts; first += 6 * 8) {
        float4 v[6];
#pragma unroll
        for (int u = 0; u < 6; u++) {
            v[u] = make_float4(0.f, 0.f, 0.f, 0.f);
            if (first + u * 8 < parts) v[u] = from[(first + u * 8) * QUADS];
        }
#pragma unroll
        for (int u = 0; u < 6; u++)
            sum.x += v[u].x, sum.y += v[u].y, sum.z += v[u].z, sum.w += v[u].w;
    }
    scratch[threadIdx.x] = sum;
    __syncthreads();
    if (slice) return;
#pragma unroll
    for (int s = 1; s < 8; s++) {
        float4 v = scratch[s * 32 + lane];
        sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
    }
    int thread = quad % THREADS, i = quad / THREADS;
    float values[4] = {sum.x, sum.y, sum.z, sum.w};
#pragma unroll
    for (int e = 0; e < 4; e++) {
        // Values come in fours: two columns of two rows, then the next 8 columns, then products.
        int j = i % Weights::COLUMNS, p = i / Weights::COLUMNS;
        int m = thread % 128 / 32 * 16 + e / 2 * 8 + thread % 32 / 4;
        int n = 8 * j + thread % 4 * 2 + e % 2;
        Weights::put(values[e], quarter, thread / 128, p, m, n, out, branch);
    }
}

#define WEIGHT_GRADIENT(NAME, LEFT, ...)                                                          \
    extern "C" __global__ void __launch_bounds__((__VA_ARGS__::THREADS), 1)                       \
        NAME(const __grid_constant__ WeightArguments arguments) {                                 \
        __VA_ARGS__::run(arguments);                                                              \
    }                                                                                             \
    extern "C" __device__ const int NAME##_shared = __VA_ARGS__::SHARED;                          \
    extern "C" __global__ void __launch_bounds__(256)                                             \
        NAME##_add(const float* source, float* out, float* branch, int parts) {                   \
        add_weight_parts<__VA_ARGS__, LEFT>(source, out, branch, parts);                          \
    }
