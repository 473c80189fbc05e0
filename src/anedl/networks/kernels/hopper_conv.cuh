// 3×3 convolution, stride 1, by wgmma, forward and gradient of the input.
//
// A team of 128 threads takes a strip of 8 image rows at a time. It keeps the strip with a border
// of one pixel in shared memory, chunk by chunk (8 channels), pixel by pixel: 8 neighbouring pixels
// of a chunk are a piece that wgmma reads, and they are one wherever they start. So each of the 9
// taps reads the same copy from another address, and global memory is read once. A product covers
// 8 × 8 pixels. Neighbouring rows share their border pixel: a row of W takes W + 1.

enum Kind {
    STEM,            // conv(x); x has 8 channels (3 and 5 zeros), so a product of 16 is two taps
    FORWARD,         // conv(leaky(scale·x + shift))
    FORWARD_ADD,     // conv(leaky(scale·x + shift)) + beside
    FORWARD_BRANCH,  // the first, and beside it a 1×1 convolution of the same activated tensor
    GRADIENT,        // conv'(x)·leaky'(scale·z + shift), z beside
    GRADIENT_BRANCH  // (conv'(x) + 1×1 conv'(x2))·leaky'(scale·z + shift)
};
// All leave, beside the output, the sums that the next BatchNorm (or its gradient) needs: of the
// output, and of its square (of its product with z).

template <int CI, int W>
struct Strip {
    static constexpr int CHUNKS = CI / 8, PITCH = W + 1, STRIPS = W / 8;
    static constexpr int BORDER = STRIPS > 1;    // whether border rows hold other strips' pixels
    static constexpr int ROWS = 8 + 2 * BORDER;  // rows to load
    static constexpr int ITEMS = W * CHUNKS;     // a row
    static constexpr int AT_ONCE = 128 / ITEMS;  // rows that a team loads at once
    static constexpr int PASSES = (ROWS + AT_ONCE - 1) / AT_ONCE;
    // Keeps 16-byte stores of neighbouring chunks off each other's banks.
    static constexpr int SPREAD = CHUNKS >= 8 ? 16 : 128 / CHUNKS;
    static constexpr int PIXELS = (10 * PITCH + 1) * 16;
    static constexpr int PLANE = (PIXELS - SPREAD + 127) / 128 * 128 + SPREAD;
};

struct ConvArguments {
    const bf16 *x, *weight, *beside, *branch_weight;
    bf16 *out, *branch;  // branch: the second output forward, the second input backward
    const float* sums_in;
    int parts_in;
    const float *gamma, *beta;
    float* norm;
    float eps, slope;
    float* sums_out;
    int images;
};

template <Kind KIND, int CI, int CO, int NB, int W, int TEAMS>
struct Conv {
    typedef Strip<CI, W> S;
    static constexpr bool BACKWARD = KIND == GRADIENT || KIND == GRADIENT_BRANCH;
    static constexpr bool BRANCH = KIND == FORWARD_BRANCH || KIND == GRADIENT_BRANCH;
    static constexpr bool ACTIVATE = !BACKWARD && KIND != STEM;
    static constexpr bool BESIDE = BACKWARD || KIND == FORWARD_ADD;
    // Whether to load what lies beside one block ahead: five teams have no registers for it.
    static constexpr bool AHEAD = W < 32;
    static constexpr int THREADS = 128 * TEAMS, PARTS = CO / NB, KSTEPS = CI < 16 ? 1 : CI / 16;
    static constexpr int TAPS = KIND == STEM || BRANCH ? 10 : 9;
    // Weights in shared memory: (tap, chunk, the other side's channel), each chunk 16 bytes longer
    // than it is, against bank conflicts.
    static constexpr int FAST = (BACKWARD ? NB : CI) / 8, SLOW = BACKWARD ? CI : NB;
    static constexpr int TAP = FAST * (SLOW + 1);  // in units of 16 bytes
    static constexpr int WEIGHTS = TAPS * TAP * 16;
    static constexpr int SECOND_PLANE = 8 * W * 16 + S::SPREAD;
    static constexpr int SECOND = KIND == GRADIENT_BRANCH ? S::CHUNKS * SECOND_PLANE : 0;
    static constexpr int TILE = S::CHUNKS * S::PLANE + SECOND;
    static constexpr int NORM = KIND == STEM ? 0 : (BACKWARD ? CO : CI) * 4;  // floats
    static constexpr int SHARED = WEIGHTS + TEAMS * TILE + (NORM + 2 * CI) * 4;
    // What a lane handles of a product's 8 × 8 pixels: GROUPS chunks of one pixel in ROWS_OUT rows.
    static constexpr int GROUPS = NB < 32 ? 1 : NB / 32, ROWS_OUT = NB < 32 ? 1 : 2;

    static INLINE void load_weights(const ConvArguments& p, char* shared, int half) {
        // Global: (CO, 3, 3, CI) forward; the same tensor is (CI, 3, 3, CO) to the gradient.
        constexpr int ITEMS = TAPS * FAST * SLOW, AT_A_TIME = 8;
        for (int first = threadIdx.x; first < ITEMS; first += AT_A_TIME * THREADS) {
            uint4 item[AT_A_TIME];
            int to[AT_A_TIME];
#pragma unroll
            for (int u = 0; u < AT_A_TIME; u++) {
                int i = first + u * THREADS;
                int chunk = i % FAST, tap = i / FAST % TAPS, slow = i / (TAPS * FAST);
                int fast = BACKWARD ? half * NB + chunk * 8 : chunk * 8;
                int row = BACKWARD ? slow : half * NB + slow, width = BACKWARD ? CO : CI;
                to[u] = (tap * TAP + chunk * (SLOW + 1) + slow) * 16;
                item[u] = make_uint4(0, 0, 0, 0);
                if (i < ITEMS && tap < 9)
                    item[u] = load_item(p.weight + (row * 9 + tap) * width + fast);
                else if (i < ITEMS && BRANCH)
                    item[u] = load_item(p.branch_weight + row * width + fast);
            }
#pragma unroll
            for (int u = 0; u < AT_A_TIME; u++)
                if (first + u * THREADS < ITEMS)
                    *reinterpret_cast<uint4*>(shared + to[u]) = item[u];
        }
    }

    // The products of all taps for block b of a tile.
    static INLINE void multiply(float (&acc)[NB / 2], float (&branch)[NB / 2], u32 tile, u64 w,
                                int b) {
        u64 a = describe(tile, S::PLANE, S::PITCH * 16) + 8 * b;
        if (KIND == STEM) {
#pragma unroll
            for (int pair = 0; pair < 5; pair++) {
                // Taps 2 and 3 are the last of one kernel row and the first of the next.
                int tap = 2 * pair, step = pair == 1 ? S::PITCH - 2 : 1;
                u64 from = describe(tile, step * 16, S::PITCH * 16) + 8 * b;
                wgmma<0, 0>(acc, from + tap / 3 * S::PITCH + tap % 3, w + tap * TAP, pair);
            }
            return;
        }
#pragma unroll
        for (int tap = 0; tap < 9; tap++) {
            int from = BACKWARD ? 8 - tap : tap;
#pragma unroll
            for (int k = 0; k < KSTEPS; k++)
                wgmma<0, BACKWARD>(
                    acc, a + from / 3 * S::PITCH + from % 3 + k * (2 * S::PLANE / 16),
                    w + tap * TAP + k * (BACKWARD ? 16 : 2 * (SLOW + 1)), tap + k);
        }
        if (BRANCH) {
            u64 second = a + S::PITCH + 1;
            if (BACKWARD)
                second = describe(tile + S::CHUNKS * S::PLANE, SECOND_PLANE, W * 16) + 8 * b;
            constexpr int NEXT = 2 * (BACKWARD ? SECOND_PLANE : S::PLANE) / 16;
            constexpr int NEXT_WEIGHTS = BACKWARD ? 16 : 2 * (SLOW + 1);
#pragma unroll
            for (int k = 0; k < KSTEPS; k++)
                wgmma<0, BACKWARD>(BACKWARD ? acc : branch, second + k * NEXT,
                                   w + 9 * TAP + k * NEXT_WEIGHTS, BACKWARD + k);
        }
    }

    // Row h, chunk g of what this lane has of the accumulator, as 8 neighbouring channels.
    static INLINE uint4 gather(const float (&acc)[NB / 2], int h, int g, int lane) {
        u32 pairs[4];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            int at = NB < 32 ? j % 2 * 4 + j / 2 * 2 : (g * 4 + j) * 4 + h * 2;
            pairs[j] = pack(acc[at], acc[at + 1]);
        }
        transpose_quad(pairs, lane);
        return make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
    }

    static INLINE void run(const ConvArguments& p) {
        extern __shared__ __align__(128) char shared[];
        char* tiles = shared + WEIGHTS;
        float* norm = reinterpret_cast<float*>(tiles + TEAMS * TILE);
        int half = blockIdx.x % PARTS, block = blockIdx.x / PARTS, blocks = gridDim.x / PARTS;
        int team = uniform(threadIdx.x / 128), t = threadIdx.x % 128, lane = t % 32, warp = t / 32;
        int chunk = t % S::CHUNKS, column = t / S::CHUNKS % W, row_of_pass = t / S::ITEMS;
        int tiles_all = p.images * S::STRIPS, index = block + team * blocks;
        uint4 fetched[S::PASSES], second[KIND == GRADIENT_BRANCH ? 8 : 1];

        auto outside = [&](int pass, int first) {
            int row = pass * S::AT_ONCE + row_of_pass;
            bool beyond = S::ROWS % S::AT_ONCE && row >= S::ROWS;
            return beyond || (S::BORDER && (unsigned)(first - S::BORDER + row) >= (unsigned)W);
        };
        auto fetch = [&](int index) {
            int image = index / S::STRIPS, first = index % S::STRIPS * 8;
            int row = image * W + first - S::BORDER + row_of_pass;
            const bf16* from = p.x + row * (W * CI) + (t % S::ITEMS) * 8;
#pragma unroll
            for (int i = 0; i < S::PASSES; i++) {
                fetched[i] = make_uint4(0, 0, 0, 0);
                if (!outside(i, first)) fetched[i] = load_item(from + i * S::AT_ONCE * W * CI);
            }
            if (KIND == GRADIENT_BRANCH) {
#pragma unroll
                for (int i = 0; i < 8; i++)
                    second[i] = load_item(p.branch + ((image * W + first + i) * W) * CI + t * 8);
            }
        };

        load_weights(p, shared, half);
        after_previous();
        if (index < tiles_all) fetch(index);
        if (BACKWARD)
            for (int i = threadIdx.x; i < NORM; i += THREADS) norm[i] = p.norm[i];
        if (ACTIVATE) {
            float *sums = norm + NORM, *scratch = reinterpret_cast<float*>(tiles);
            add_parts<2 * CI, THREADS>(p.sums_in, p.parts_in, scratch, sums);
            finish_statistics<CI, THREADS>(sums, (float)p.images * W * W, p.gamma, p.beta, p.eps,
                                           p.norm, norm);
        }
        for (int i = threadIdx.x; i < TEAMS * TILE / 16; i += THREADS)
            reinterpret_cast<uint4*>(tiles)[i] = make_uint4(0, 0, 0, 0);
        publish_to_wgmma();
        __syncthreads();

        char* tile = tiles + team * TILE;
        char* place = tile + chunk * S::PLANE +
                      ((1 - S::BORDER + row_of_pass) * S::PITCH + column + 1) * 16;
        auto place_fetched = [&](int index) {
            int first = index % S::STRIPS * 8;
            float scale[8], shift[8];
            if (ACTIVATE) {
                load8(norm + 2 * CI + chunk * 8, scale);
                load8(norm + 3 * CI + chunk * 8, shift);
            }
#pragma unroll
            for (int i = 0; i < S::PASSES; i++) {
                uint4 item = fetched[i];
                if (ACTIVATE && !outside(i, first)) {
                    float v[8];
                    unpack(item, v);
                    activate(v, scale, shift, p.slope);
                    item = pack(v);
                }
                if (S::ROWS % S::AT_ONCE == 0 || i * S::AT_ONCE + row_of_pass < S::ROWS)
                    *reinterpret_cast<uint4*>(place + i * S::AT_ONCE * S::PITCH * 16) = item;
            }
            if (KIND == GRADIENT_BRANCH) {
                char* to = tile + S::CHUNKS * S::PLANE + chunk * SECOND_PLANE + column * 16;
#pragma unroll
                for (int i = 0; i < 8; i++)
                    *reinterpret_cast<uint4*>(to + i * W * 16) = second[i];
            }
        };

        // Accumulator rows 16·warp + 8·h + lane / 4 are pixels (2·warp + h, lane / 4).
        int own_row = 2 * warp + (NB < 32 ? lane % 4 / 2 : 0);
        int own_channel = half * NB + (NB < 32 ? lane % 2 : lane % 4) * 8;
        u64 w_base = BACKWARD ? describe(shared_address(shared), 128, (SLOW + 1) * 16)
                              : describe(shared_address(shared), (SLOW + 1) * 16, 128);
        u32 tile_address = shared_address(tile);
        float sum[GROUPS][8] = {}, square[GROUPS][8] = {};
        auto own_offset = [&](int index) {
            int row = index / S::STRIPS * W + index % S::STRIPS * 8 + own_row;
            return (row * W + lane / 4) * CO + own_channel;
        };
        uint4 coming[ROWS_OUT][GROUPS] = {};  // what lies beside the next block
        auto look_ahead = [&](int offset) {
#pragma unroll
            for (int h = 0; h < ROWS_OUT; h++)
#pragma unroll
                for (int g = 0; g < GROUPS; g++)
                    coming[h][g] = load_item(p.beside + offset + h * W * CO + g * 32);
        };
        if (BESIDE && AHEAD && index < tiles_all) look_ahead(own_offset(index));
        while (index < tiles_all) {
            place_fetched(index);
            publish_to_wgmma();
            team_barrier(1 + team, 128);
            int next = index + blocks * TEAMS;
            if (next < tiles_all) fetch(next);
            int offset = own_offset(index);
#pragma unroll 1
            for (int b = 0; b < W / 8; b++, offset += 8 * CO) {
                float acc[NB / 2], branch[NB / 2];
                wgmma_begin();
                multiply(acc, branch, tile_address, w_base, b);
                wgmma_commit();
                uint4 beside[ROWS_OUT][GROUPS];
                if (BESIDE && !AHEAD) look_ahead(offset);
#pragma unroll
                for (int h = 0; h < ROWS_OUT; h++)
#pragma unroll
                    for (int g = 0; g < GROUPS; g++) beside[h][g] = coming[h][g];
                if (BESIDE && AHEAD) {
                    if (b + 1 < W / 8) look_ahead(offset + 8 * CO);
                    else if (next < tiles_all) look_ahead(own_offset(next));
                }
                wgmma_wait();
                pin(acc);
                if (KIND == FORWARD_BRANCH) pin(branch);
#pragma unroll
                for (int h = 0; h < ROWS_OUT; h++)
#pragma unroll
                    for (int g = 0; g < GROUPS; g++) {
                        uint4 item = gather(acc, h, g, lane);
                        float v[8], z[8];
                        unpack(item, v);
                        if (BESIDE) unpack(beside[h][g], z);
                        if (BACKWARD) {
                            float scale[8], shift[8];
                            load8(norm + 2 * CO + own_channel + g * 32, scale);
                            load8(norm + 3 * CO + own_channel + g * 32, shift);
#pragma unroll
                            for (int c = 0; c < 8; c++)
                                if (!(fmaf(z[c], scale[c], shift[c]) > 0.f)) v[c] *= p.slope;
                        } else if (KIND == FORWARD_ADD) {
#pragma unroll
                            for (int c = 0; c < 8; c++) v[c] += z[c];
                        }
                        if (BESIDE) {
                            item = pack(v);
                            unpack(item, v);
                        }
#pragma unroll
                        for (int c = 0; c < 8; c++) {
                            sum[g][c] += v[c];
                            square[g][c] = fmaf(v[c], BACKWARD ? z[c] : v[c], square[g][c]);
                        }
                        store_item(p.out + offset + h * W * CO + g * 32, item);
                        if (KIND == FORWARD_BRANCH)
                            store_item(p.branch + offset + h * W * CO + g * 32,
                                       gather(branch, h, g, lane));
                    }
            }
            team_barrier(1 + team, 128);
            index = next;
        }

        __syncthreads();
        float* scratch = reinterpret_cast<float*>(tiles);  // (4·TEAMS, 2, NB)
        constexpr int LANES = NB < 32 ? 2 : 4;             // that hold different channels
#pragma unroll
        for (int g = 0; g < GROUPS; g++)
#pragma unroll
            for (int c = 0; c < 8; c++) {
#pragma unroll
                for (int d = LANES; d < 32; d *= 2) {
                    sum[g][c] += __shfl_xor_sync(0xffffffffu, sum[g][c], d);
                    square[g][c] += __shfl_xor_sync(0xffffffffu, square[g][c], d);
                }
                if (lane < LANES) {
                    float* to = scratch + (threadIdx.x / 32) * 2 * NB + g * 32 + lane * 8 + c;
                    to[0] = sum[g][c], to[NB] = square[g][c];
                }
            }
        __syncthreads();
        for (int i = threadIdx.x; i < 2 * NB; i += THREADS) {
            float total = 0.f;
#pragma unroll
            for (int w = 0; w < 4 * TEAMS; w++) total += scratch[w * 2 * NB + i];
            p.sums_out[(block * 2 + i / NB) * CO + half * NB + i % NB] = total;
        }
    }
};

#define CONVOLUTION(NAME, KIND, CI, CO, NB, W, TEAMS)                                             \
    extern "C" __global__ void __launch_bounds__(128 * TEAMS, 1)                                  \
        NAME(const __grid_constant__ ConvArguments arguments) {                                   \
        Conv<KIND, CI, CO, NB, W, TEAMS>::run(arguments);                                         \
    }                                                                                             \
    extern "C" __device__ const int NAME##_shared = Conv<KIND, CI, CO, NB, W, TEAMS>::SHARED;
