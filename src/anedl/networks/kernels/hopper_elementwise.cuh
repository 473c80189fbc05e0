// What BatchNorm leaves over between convolutions: sums, activation, gradient, and the final pool.
// Threads keep their chunk of 8 channels while they walk through the tensor, 512 to a block.

constexpr int WALKERS = 512;

constexpr int AT_A_TIME = 4;  // items whose loads a thread issues together

// Calls work(first, step) for every AT_A_TIME items of this thread; the last may not exist.
template <typename Work>
INLINE void walk(int items, Work work) {
    int step = gridDim.x * WALKERS;
    for (int i = blockIdx.x * WALKERS + threadIdx.x; i < items; i += AT_A_TIME * step)
        work(i, step);
}

// Items first, first + step, ... of x, where they exist.
INLINE void load_items(uint4 (&item)[AT_A_TIME], const bf16* x, int first, int step, int items) {
#pragma unroll
    for (int u = 0; u < AT_A_TIME; u++)
        if (first + u * step < items) item[u] = load_item(x + (u64)(first + u * step) * 8);
}

// sums_out (blocks, 2, C) from each thread's two sums over its chunk.
template <int C>
INLINE void leave_sums(const float (&first)[8], const float (&second)[8], float* sums_out) {
    __shared__ float scratch[WALKERS * 8];
    constexpr int CHUNKS = C / 8, SLICES = WALKERS / CHUNKS;
#pragma unroll
    for (int which = 0; which < 2; which++) {
#pragma unroll
        for (int c = 0; c < 8; c++)
            scratch[threadIdx.x * 8 + c] = which ? second[c] : first[c];
        __syncthreads();
        // Halve the number of slices until C · slices fits the block's threads, then add them up.
        for (int half = SLICES / 2; half >= 1; half /= 2) {
            for (int i = threadIdx.x; i < half * C; i += WALKERS)
                scratch[i] += scratch[i + half * C];
            __syncthreads();
        }
        if (threadIdx.x < C)
            sums_out[(blockIdx.x * 2 + which) * C + threadIdx.x] = scratch[threadIdx.x];
        __syncthreads();
    }
}

template <int C>
INLINE void sum_run(const bf16* x, float* sums_out, int items) {
    float first[8] = {}, second[8] = {};
    after_previous();
    walk(items, [&](int i, int step) {
        uint4 item[AT_A_TIME] = {};
        load_items(item, x, i, step, items);
#pragma unroll
        for (int u = 0; u < AT_A_TIME; u++) {
            float v[8];
            unpack(item[u], v);
#pragma unroll
            for (int c = 0; c < 8; c++) first[c] += v[c], second[c] = fmaf(v[c], v[c], second[c]);
        }
    });
    leave_sums<C>(first, second, sums_out);
}

// y = leaky(scale·x + shift) after finishing the statistics of x.
template <int C>
INLINE void activate_run(const bf16* x, bf16* y, const float* sums_in, int parts_in,
                         const float* gamma, const float* beta, float* norm_global, float eps,
                         float slope, int items) {
    __shared__ float scratch[4 * WALKERS], sums[2 * C], norm[4 * C];
    after_previous();
    add_parts<2 * C, WALKERS>(sums_in, parts_in, scratch, sums);
    finish_statistics<C, WALKERS>(sums, (float)(items / (C / 8)), gamma, beta, eps,
                                  norm_global, norm);
    float scale[8], shift[8];
    load8(norm + 2 * C + threadIdx.x % (C / 8) * 8, scale);
    load8(norm + 3 * C + threadIdx.x % (C / 8) * 8, shift);
    walk(items, [&](int i, int step) {
        uint4 item[AT_A_TIME];
        load_items(item, x, i, step, items);
#pragma unroll
        for (int u = 0; u < AT_A_TIME; u++) {
            if (i + u * step >= items) return;
            float v[8];
            unpack(item[u], v);
            activate(v, scale, shift, slope);
            store_item(y + (u64)(i + u * step) * 8, pack(v));
        }
    });
}

// out = gradient · leaky'(scale·z + shift), and the sums of it and of it times z. If SPREAD, the
// gradient is that of each image's mean over pixels, in float32.
template <int C, bool SPREAD>
INLINE void activation_gradient_run(const void* gradient, const bf16* z, const float* norm,
                                    float slope, bf16* out, float* sums_out, int items,
                                    int pixels) {
    float first[8] = {}, second[8] = {}, scale[8], shift[8];
    after_previous();
    int chunk = threadIdx.x % (C / 8);
    load8(norm + 2 * C + chunk * 8, scale);
    load8(norm + 3 * C + chunk * 8, shift);
    walk(items, [&](int i, int step) {
        uint4 item[AT_A_TIME], other[AT_A_TIME];
        if (!SPREAD) load_items(item, (const bf16*)gradient, i, step, items);
        load_items(other, z, i, step, items);
#pragma unroll
        for (int u = 0; u < AT_A_TIME; u++) {
            if (i + u * step >= items) return;
            float v[8], x[8];
            if (SPREAD) {
                int image = (i + u * step) / (pixels * (C / 8));
                load8((const float*)gradient + image * C + chunk * 8, v);
#pragma unroll
                for (int c = 0; c < 8; c++) v[c] /= pixels;
            } else {
                unpack(item[u], v);
            }
            unpack(other[u], x);
#pragma unroll
            for (int c = 0; c < 8; c++)
                if (!(fmaf(x[c], scale[c], shift[c]) > 0.f)) v[c] *= slope;
            uint4 result = pack(v);
            unpack(result, v);
#pragma unroll
            for (int c = 0; c < 8; c++) first[c] += v[c], second[c] = fmaf(v[c], x[c], second[c]);
            store_item(out + (u64)(i + u * step) * 8, result);
        }
    });
    leave_sums<C>(first, second, sums_out);
}

// features (images, C) = the mean over pixels of leaky(scale·z + shift).
template <int C>
INLINE void pool_run(const bf16* z, float* features, const float* sums_in, int parts_in,
                     const float* gamma, const float* beta, float* norm_global, float eps,
                     float slope, int images, int pixels) {
    __shared__ float scratch[8 * WALKERS], sums[2 * C], norm[4 * C];
    constexpr int CHUNKS = C / 8, SLICES = WALKERS / CHUNKS;
    after_previous();
    add_parts<2 * C, WALKERS>(sums_in, parts_in, scratch, sums);
    finish_statistics<C, WALKERS>(sums, (float)images * pixels, gamma, beta, eps, norm_global,
                                  norm);
    int chunk = threadIdx.x % CHUNKS, slice = threadIdx.x / CHUNKS;
    float scale[8], shift[8];
    load8(norm + 2 * C + chunk * 8, scale);
    load8(norm + 3 * C + chunk * 8, shift);
    for (int image = blockIdx.x; image < images; image += gridDim.x) {
        float total[8] = {};
        for (int pixel = slice; pixel < pixels; pixel += SLICES) {
            float v[8];
            unpack(load_item(z + ((u64)(image * pixels + pixel) * CHUNKS + chunk) * 8), v);
            activate(v, scale, shift, slope);
#pragma unroll
            for (int c = 0; c < 8; c++) total[c] += v[c];
        }
#pragma unroll
        for (int c = 0; c < 8; c++) scratch[threadIdx.x * 8 + c] = total[c];
        __syncthreads();
        if (threadIdx.x < C) {
            float sum = 0.f;
            for (int s = 0; s < SLICES; s++) sum += scratch[s * C + threadIdx.x];
            features[image * C + threadIdx.x] = sum / pixels;
        }
        __syncthreads();
    }
}

// out = BatchNorm's gradient from g, the one behind its activation, (+ residual); and the gradients
// of gamma and beta.
template <int C, bool ADD>
INLINE void norm_gradient_run(const bf16* g, const bf16* z, const bf16* residual, const float* norm,
                              const float* sums_in, int parts_in, bf16* out, float* gamma_gradient,
                              float* beta_gradient, int items) {
    __shared__ float scratch[4 * WALKERS], sums[2 * C], by_z[C], constant[C];
    after_previous();
    add_parts<2 * C, WALKERS>(sums_in, parts_in, scratch, sums);
    float count = (float)(items / (C / 8));
    for (int c = threadIdx.x; c < C; c += WALKERS) {
        float mean = norm[c], rstd = norm[C + c];
        float of_gamma = rstd * (sums[C + c] - mean * sums[c]), of_beta = sums[c];
        by_z[c] = -norm[2 * C + c] * rstd * of_gamma / count;
        constant[c] = -norm[2 * C + c] * of_beta / count - by_z[c] * mean;
        if (blockIdx.x == 0) gamma_gradient[c] = of_gamma, beta_gradient[c] = of_beta;
    }
    __syncthreads();
    float a[8], b[8], d[8];
    load8(norm + 2 * C + threadIdx.x % (C / 8) * 8, a);
    load8(by_z + threadIdx.x % (C / 8) * 8, b);
    load8(constant + threadIdx.x % (C / 8) * 8, d);
    walk(items, [&](int i, int step) {
        uint4 item[AT_A_TIME], other[AT_A_TIME], more[AT_A_TIME];
        load_items(item, g, i, step, items);
        load_items(other, z, i, step, items);
        if (ADD) load_items(more, residual, i, step, items);
#pragma unroll
        for (int u = 0; u < AT_A_TIME; u++) {
            if (i + u * step >= items) return;
            float v[8], x[8], r[8];
            unpack(item[u], v);
            unpack(other[u], x);
            if (ADD) unpack(more[u], r);
#pragma unroll
            for (int c = 0; c < 8; c++) {
                v[c] = fmaf(a[c], v[c], fmaf(b[c], x[c], d[c]));
                if (ADD) v[c] += r[c];
            }
            store_item(out + (u64)(i + u * step) * 8, pack(v));
        }
    });
}

#define SUM(C)                                                                                    \
    extern "C" __global__ void __launch_bounds__(WALKERS)                                         \
        sum_##C(const bf16* x, float* sums_out, int items) {                                      \
        sum_run<C>(x, sums_out, items);                                                           \
    }

#define ACTIVATE(C)                                                                               \
    extern "C" __global__ void __launch_bounds__(WALKERS)                                         \
        activate_##C(const bf16* x, bf16* y, const float* sums_in, int parts_in,                  \
                     const float* gamma, const float* beta, float* norm, float eps, float slope,  \
                     int items) {                                                                 \
        activate_run<C>(x, y, sums_in, parts_in, gamma, beta, norm, eps, slope, items);           \
    }                                                                                             \
    extern "C" __global__ void __launch_bounds__(WALKERS)                                         \
        activation_gradient_##C(const bf16* gradient, const bf16* z, const float* norm,           \
                                float slope, bf16* out, float* sums_out, int items) {             \
        activation_gradient_run<C, false>(gradient, z, norm, slope, out, sums_out, items, 1);     \
    }

#define NORM_GRADIENT(C)                                                                          \
    extern "C" __global__ void __launch_bounds__(WALKERS)                                         \
        norm_gradient_##C(const bf16* g, const bf16* z, const bf16* residual, const float* norm,  \
                          const float* sums_in, int parts_in, bf16* out, float* gamma_gradient,   \
                          float* beta_gradient, int items) {                                      \
        if (residual)                                                                             \
            norm_gradient_run<C, true>(g, z, residual, norm, sums_in, parts_in, out,              \
                                       gamma_gradient, beta_gradient, items);                     \
        else                                                                                      \
            norm_gradient_run<C, false>(g, z, residual, norm, sums_in, parts_in, out,             \
                                        gamma_gradient, beta_gradient, items);                    \
    }

#define POOL(C)                                                                                   \
    extern "C" __global__ void __launch_bounds__(WALKERS)                                         \
        pool_##C(const bf16* z, float* features, const float* sums_in, int parts_in,              \
                 const float* gamma, const float* beta, float* norm, float eps, float slope,      \
                 int images, int pixels) {                                                        \
        pool_run<C>(z, features, sums_in, parts_in, gamma, beta, norm, eps, slope, images,        \
                    pixels);                                                                      \
    }                                                                                             \
    extern "C" __global__ void __launch_bounds__(WALKERS)                                         \
        pool_gradient_##C(const float* gradient, const bf16* z, const float* norm, float slope,   \
                          bf16* out, float* sums_out, int items, int pixels) {                    \
        activation_gradient_run<C, true>(gradient, z, norm, slope, out, sums_out, items, pixels); \
    }

// Three channels and five of zeros, in bf16, from float32 images (pixels, 3).
extern "C" __global__ void __launch_bounds__(256)
    pad_images(const float* images, bf16* out, int pixels) {
    after_previous();
    for (int i = blockIdx.x * 256 + threadIdx.x; i < pixels; i += gridDim.x * 256) {
        const float* p = images + (u64)i * 3;
        store_item(out + (u64)i * 8, make_uint4(pack(p[0], p[1]), pack(p[2], 0.f), 0, 0));
    }
}

// Float32 kernels (co, 3, 3, ci) in bf16, one behind the other; the first gets 8 input channels, 5
// of zeros, for its 3. `begin` counts items of 8.
struct CastTable {
    const float* source[64];
    int begin[65];
};
extern "C" __global__ void __launch_bounds__(256)
    cast_weights(const __grid_constant__ CastTable table, bf16* out, int count) {
    after_previous();
    int i = blockIdx.x * 256 + threadIdx.x;
    if (i >= table.begin[count]) return;
    int which = 0;
    while (i >= table.begin[which + 1]) which++;
    float v[8] = {};
    if (which == 0) {
        for (int c = 0; c < 3; c++) v[c] = table.source[0][i * 3 + c];
    } else {
        load8(table.source[which] + (i - table.begin[which]) * 8, v);
    }
    store_item(out + (u64)i * 8, pack(v));
}
