// What an iteration does on a CPU beside its matrix products: norms, rotation, paged attention and the gate.
//
// C++17 with GCC's vector extensions, which Clang has too. All sums are in Sum<T>: float for bf16 and float, double for
// double. Every row of the output is made by the same operations in the same order whatever else is in the batch.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include <omp.h>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#define INLINE inline __attribute__((always_inline))

namespace {

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64, kRowsAtOnce = 4;
#elif defined(__AVX2__)
constexpr int kVectorBytes = 32, kRowsAtOnce = 2;
#else
constexpr int kVectorBytes = 16, kRowsAtOnce = 2;
#endif
constexpr int kVectorsAtOnce = 4;
constexpr int kTileKeys = 64;     // keys whose scores are made before they are weighed
constexpr int kTileRows = 32;     // query rows that share a walk over the keys
constexpr int kPartKeys = 512;    // keys that are summed up apart, so that threads can share a long context
constexpr int64_t kWorthThreads = 1 << 14;  // elements below which waking threads costs more than it brings

struct Bf16 {
    uint16_t bits;
};

template <class T>
using Sum = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <class S>
struct VectorOf {
    typedef S type __attribute__((vector_size(kVectorBytes)));
};
template <class S>
using Vector = typename VectorOf<S>::type;
template <class S>
constexpr int kWidth = kVectorBytes / int(sizeof(S));

template <class To, class From>
INLINE To bits_as(From from) {
    static_assert(sizeof(To) == sizeof(From));
    To to;
    std::memcpy(&to, &from, sizeof to);
    return to;
}

// ---- vectors ----

typedef uint16_t Halves __attribute__((vector_size(kVectorBytes / 2)));
typedef uint32_t Wholes __attribute__((vector_size(kVectorBytes)));

// GCC converts by halves of vectors where one instruction does it.
INLINE Wholes whole(Halves halves) {
#if defined(__AVX512F__)
    return bits_as<Wholes>(_mm512_cvtepu16_epi32(bits_as<__m256i>(halves)));
#elif defined(__AVX2__)
    return bits_as<Wholes>(_mm256_cvtepu16_epi32(bits_as<__m128i>(halves)));
#else
    return __builtin_convertvector(halves, Wholes);
#endif
}

template <class T>
INLINE Vector<Sum<T>> load(const T* from) {
    if constexpr (std::is_same_v<T, Bf16>) {
        Halves halves;
        std::memcpy(&halves, from, sizeof halves);
        return bits_as<Vector<float>>(whole(halves) << 16);
    } else {
        Vector<T> vector;
        std::memcpy(&vector, from, sizeof vector);
        return vector;
    }
}

template <class T>
INLINE void store(T* to, Vector<Sum<T>> vector) {
    if constexpr (std::is_same_v<T, Bf16>) {
        Wholes bits = bits_as<Wholes>(vector);
        Wholes rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;  // to nearest, ties to even
        Halves halves = __builtin_convertvector(vector == vector ? rounded : Wholes{} + 0x7fc0, Halves);
        std::memcpy(to, &halves, sizeof halves);
    } else {
        std::memcpy(to, &vector, sizeof vector);
    }
}

// The same where only `left` elements may be touched, if these are fewer; the others read as 0.
template <class T>
INLINE Vector<Sum<T>> load(const T* from, int64_t left) {
    if (left >= kWidth<Sum<T>>) return load(from);
    T some[kWidth<Sum<T>>] = {};
    std::memcpy(some, from, left * sizeof(T));
    return load(some);
}

template <class T>
INLINE void store(T* to, Vector<Sum<T>> vector, int64_t left) {
    if (left >= kWidth<Sum<T>>) return store(to, vector);
    T some[kWidth<Sum<T>>];
    store(some, vector);
    std::memcpy(to, some, left * sizeof(T));
}

template <class S>
INLINE Vector<S> spread(S x) {
    return Vector<S>{} + x;
}

template <class V, std::size_t... I>
INLINE V moved_down(V vector, std::size_t by, std::index_sequence<I...>) {
    typedef std::conditional_t<sizeof(vector[0]) == 8, int64_t, int32_t> Index;
    typedef Index Indices __attribute__((vector_size(kVectorBytes)));
    return __builtin_shuffle(vector, Indices{Index(I + by)...});
}

// All elements joined by an operation, by halves.
template <class S, class Join>
INLINE S joined(Vector<S> vector, Join join) {
#pragma GCC unroll 8
    for (int half = kWidth<S> / 2; half >= 1; half /= 2) {
        vector = join(vector, moved_down(vector, half, std::make_index_sequence<kWidth<S>>()));
    }
    return vector[0];
}

template <class S>
INLINE S total(Vector<S> vector) {
    return joined<S>(vector, [](Vector<S> a, Vector<S> b) { return a + b; });
}

template <class S>
INLINE S highest(Vector<S> vector) {
    return joined<S>(vector, [](Vector<S> a, Vector<S> b) { return a > b ? a : b; });
}

INLINE Vector<double> exponential(Vector<double> x) {
    for (int i = 0; i < kWidth<double>; ++i) x[i] = std::exp(x[i]);
    return x;
}

// exp(x) = 2^n exp(r) with |r| <= ln 2 / 2 and Taylor's polynomial for exp(r); 0 below -87, and no more than exp(88).
INLINE Vector<float> exponential(Vector<float> x) {
    constexpr float kShift = 12582912.0f;  // 1.5 * 2^23: adding it leaves the nearest integer in the low bits
    Vector<float> lowest = spread(-87.0f), highest = spread(88.0f);
    Vector<float> clamped = x < lowest ? lowest : x > highest ? highest : x;
    Vector<float> shifted = clamped * 1.44269504f + kShift;
    Vector<float> n = shifted - kShift;
    Vector<float> r = clamped - n * 0.693359375f;
    r = r + n * 2.12194440e-4f;
    Vector<float> y = spread(1.0f / 5040);
    for (float c : {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f}) y = y * r + c;
    typedef int32_t Ints __attribute__((vector_size(kVectorBytes)));
    Ints scale = bits_as<Ints>(shifted) << 23;
    y = bits_as<Vector<float>>(bits_as<Ints>(y) + scale);
    return x < lowest ? Vector<float>{} : y;
}

template <class V, std::size_t... I>
INLINE V interleaved_sum(V a, V b, std::index_sequence<I...>) {
    constexpr std::size_t n = sizeof...(I);
    V low = __builtin_shufflevector(a, b, (I / 2 + (I % 2) * n)...);
    V high = __builtin_shufflevector(a, b, (I / 2 + n / 2 + (I % 2) * n)...);
    return low + high;
}

// The totals of as many vectors as a vector has elements, in their order.
template <class S>
INLINE Vector<S> totals(Vector<S>* vectors) {
#pragma GCC unroll 8
    for (int half = kWidth<S> / 2; half >= 1; half /= 2) {
#pragma GCC unroll 16
        for (int i = 0; i < half; ++i) {
            vectors[i] = interleaved_sum(vectors[i], vectors[i + half], std::make_index_sequence<kWidth<S>>());
        }
    }
    return vectors[0];
}

// to = x / rms(x) * weight
template <class T>
INLINE void scale_to_unit(const T* x, const T* weight, T* to, int64_t size, double epsilon) {
    using S = Sum<T>;
    Vector<S> squares = {};
    for (int64_t i = 0; i < size; i += kWidth<S>) {
        Vector<S> some = load(x + i, size - i);
        squares += some * some;
    }
    S factor = 1 / std::sqrt(total<S>(squares) / S(size) + S(epsilon));
    for (int64_t i = 0; i < size; i += kWidth<S>) {
        store(to + i, load(x + i, size - i) * factor * load(weight + i, size - i), size - i);
    }
}

// ---- scores ----

// Elements that one step of a dot product takes; rows are padded to a multiple of it.
template <class T>
constexpr int kStep = kWidth<Sum<T>>;

template <class T>
INLINE Vector<Sum<T>> dot_step(Vector<Sum<T>> sum, const T* a, const T* b) {
    return sum + load(a) * load(b);
}

#if defined(__AVX512BF16__)
template <>
constexpr int kStep<Bf16> = 32;

template <>
INLINE Vector<float> dot_step<Bf16>(Vector<float> sum, const Bf16* a, const Bf16* b) {
    __m512bh left = bits_as<__m512bh>(_mm512_loadu_si512(a)), right = bits_as<__m512bh>(_mm512_loadu_si512(b));
    return bits_as<Vector<float>>(_mm512_dpbf16_ps(bits_as<__m512>(sum), left, right));
}
#endif

// Dot products of a query with as many keys as a vector has elements.
template <class T>
INLINE Vector<Sum<T>> dots(const T* query, const T* const* keys, int size) {
    using S = Sum<T>;
    Vector<S> sums[kWidth<S>] = {};
    for (int d = 0; d < size; d += kStep<T>) {
#pragma GCC unroll 16
        for (int j = 0; j < kWidth<S>; ++j) sums[j] = dot_step<T>(sums[j], query + d, keys[j] + d);
    }
    return totals<S>(sums);
}

// ---- weighted values ----

// rows[r] = rows[r] * keep[r] + sum over keys of weights[r][key] * values[key][offset...], for a block of both.
template <class T, int Rows, int Vectors>
INLINE void weigh(const T* const* values, int64_t offset, int keys, const Sum<T>* weights, const Sum<T>* keep,
                  Sum<T>* rows, int stride) {
    using S = Sum<T>;
    Vector<S> sums[Rows][Vectors];
    for (int r = 0; r < Rows; ++r)
        for (int v = 0; v < Vectors; ++v) sums[r][v] = load(rows + r * stride + v * kWidth<S>) * keep[r];
    for (int key = 0; key < keys; ++key) {
        Vector<S> value[Vectors];
        for (int v = 0; v < Vectors; ++v) value[v] = load(values[key] + offset + v * kWidth<S>);
        for (int r = 0; r < Rows; ++r)
            for (int v = 0; v < Vectors; ++v) sums[r][v] += value[v] * weights[r * kTileKeys + key];
    }
    for (int r = 0; r < Rows; ++r)
        for (int v = 0; v < Vectors; ++v) store(rows + r * stride + v * kWidth<S>, sums[r][v]);
}

// ---- paged attention ----

struct Attention {
    void* heads;  // [tokens, heads + 2 kv_heads, head_dim]: queries, keys, values; both first are turned in place
    void* attended;  // [tokens, heads, head_dim]
    void* cache;     // the layer's [slots, 2, kv_heads, head_dim]
    const void* query_norm;  // [head_dim], or null
    const void* key_norm;
    const void* cosines;  // [positions, head_dim / 2]
    const void* sines;
    const int64_t* blocks;  // [rows, blocks_per_row]
    const int64_t* row;     // of each request in `blocks`
    const int64_t* start;   // position of each request's first new token
    const int64_t* first;   // its place in the batch; one more entry at the end
    int64_t requests, query_heads, kv_heads, head_dim, block_size, blocks_per_row;
    double epsilon, scale;
};

// Rows of one request and one KV head, and a part of the keys, or all parts one after another.
struct Item {
    int64_t request, first_token, tokens, kv_head, first_part, parts;
    int64_t shared = -1;  // place among the parts that others finish, or -1
};

// Weighted sums of values over some keys: sums of weights relative to exp(highest score).
template <class S>
struct Part {
    int rows = 0, stride = 0;
    std::vector<S> highest, weight, sums;

    void clear(int new_rows, int new_stride) {
        rows = new_rows, stride = new_stride;
        highest.assign(rows, -std::numeric_limits<S>::infinity());
        weight.assign(rows, 0);
        sums.assign(std::size_t(rows) * stride, 0);
    }

    void fold(const Part& other) {
        for (int r = 0; r < rows; ++r) {
            if (other.weight[r] == 0) continue;
            S top = std::max(highest[r], other.highest[r]);
            S ours = std::exp(highest[r] - top), theirs = std::exp(other.highest[r] - top);
            highest[r] = top;
            weight[r] = weight[r] * ours + other.weight[r] * theirs;
            for (int d = 0; d < stride; ++d) {
                sums[r * stride + d] = sums[r * stride + d] * ours + other.sums[r * stride + d] * theirs;
            }
        }
    }
};

template <class T>
class PagedAttention {
    using S = Sum<T>;

  public:
    explicit PagedAttention(const Attention& a)
        : a_(a),
          size_(int(a.head_dim)),
          padded_((size_ + kStep<T> - 1) / kStep<T> * kStep<T>),
          group_(int(a.query_heads / a.kv_heads)),
          tile_tokens_(std::max(1, kTileRows / group_)),
          width_(a.query_heads + 2 * a.kv_heads) {
        list_items();
    }

    void run() {
        int64_t tokens = a_.first[a_.requests];
        std::vector<Part<S>> shared(shared_);
#pragma omp parallel
        {
            Scratch scratch(*this);
#pragma omp for schedule(static)
            for (int64_t token = 0; token < tokens; ++token) turn_and_keep(token);
#pragma omp for schedule(dynamic)
            for (std::size_t i = 0; i < items_.size(); ++i) attend(items_[i], scratch, shared);
#pragma omp for schedule(dynamic)
            for (std::size_t i = 0; i < items_.size(); ++i) {
                if (items_[i].shared >= 0 && items_[i].first_part == 0) join(items_[i], scratch, shared);
            }
        }
    }

  private:
    struct Scratch {
        explicit Scratch(const PagedAttention& p)
            : queries(std::size_t(p.tile_tokens_) * p.group_ * p.padded_),
              copies(p.padded_ == p.size_ ? 0 : 2 * std::size_t(kTileKeys) * p.padded_),
              weights(std::size_t(p.tile_tokens_) * p.group_ * kTileKeys),
              keep(std::size_t(p.tile_tokens_) * p.group_) {}
        std::vector<T> queries, copies;
        std::vector<S> weights, keep;
        const T* keys[kTileKeys];
        int64_t to_values = 0;  // from a key to its value
        Part<S> part, whole;
    };

    void list_items() {
        for (int64_t request = 0; request < a_.requests; ++request) {
            int64_t count = a_.first[request + 1] - a_.first[request];
            for (int64_t token = 0; token < count; token += tile_tokens_) {
                int64_t tokens = std::min<int64_t>(tile_tokens_, count - token);
                int64_t parts = (a_.start[request] + token + tokens + kPartKeys - 1) / kPartKeys;
                bool share = parts > 1 && count <= tile_tokens_;
                for (int64_t head = 0; head < a_.kv_heads; ++head) {
                    for (int64_t part = 0; part < (share ? parts : 1); ++part) {
                        items_.push_back({request, token, tokens, head, part, parts, share ? shared_++ : -1});
                    }
                }
            }
        }
    }

    T* head_of(int64_t token, int64_t head) const {
        return static_cast<T*>(a_.heads) + (token * width_ + head) * size_;
    }

    T* slot_of(int64_t request, int64_t position) const {
        int64_t block = a_.blocks[a_.row[request] * a_.blocks_per_row + position / a_.block_size];
        int64_t slot = block * a_.block_size + position % a_.block_size;
        return static_cast<T*>(a_.cache) + slot * 2 * a_.kv_heads * size_;
    }

    void turn_and_keep(int64_t token) {
        int64_t request = std::upper_bound(a_.first, a_.first + a_.requests + 1, token) - a_.first - 1;
        int64_t position = a_.start[request] + token - a_.first[request];
        for (int64_t head = 0; head < a_.query_heads + a_.kv_heads; ++head) {
            T* x = head_of(token, head);
            if (a_.query_norm) normalize(x, head < a_.query_heads ? a_.query_norm : a_.key_norm);
            turn(x, position);
        }
        std::memcpy(slot_of(request, position), head_of(token, a_.query_heads), 2 * a_.kv_heads * size_ * sizeof(T));
    }

    void normalize(T* x, const void* norm) const {
        scale_to_unit(x, static_cast<const T*>(norm), x, size_, a_.epsilon);
    }

    void turn(T* x, int64_t position) const {
        int half = size_ / 2;
        const T* cosines = static_cast<const T*>(a_.cosines) + position * half;
        const T* sines = static_cast<const T*>(a_.sines) + position * half;
        for (int d = 0; d < half; d += kWidth<S>) {
            int left = half - d;
            Vector<S> first = load(x + d, left), second = load(x + half + d, left);
            Vector<S> cosine = load(cosines + d, left), sine = load(sines + d, left);
            store(x + d, first * cosine - second * sine, left);
            store(x + half + d, second * cosine + first * sine, left);
        }
    }

    void attend(const Item& item, Scratch& s, std::vector<Part<S>>& shared) {
        take_queries(item, s);
        if (item.shared >= 0) {
            sum_part(item, item.first_part, s, shared[item.shared]);
            return;
        }
        sum_part(item, 0, s, s.whole);
        for (int64_t part = 1; part < item.parts; ++part) {
            sum_part(item, part, s, s.part);
            s.whole.fold(s.part);
        }
        write(item, s.whole);
    }

    void join(const Item& item, Scratch& s, std::vector<Part<S>>& shared) {
        s.whole = shared[item.shared];
        for (int64_t part = 1; part < item.parts; ++part) s.whole.fold(shared[item.shared + part]);
        write(item, s.whole);
    }

    void take_queries(const Item& item, Scratch& s) const {
        T* to = s.queries.data();
        for (int64_t token = 0; token < item.tokens; ++token) {
            const T* from = head_of(a_.first[item.request] + item.first_token + token, item.kv_head * group_);
            for (int head = 0; head < group_; ++head, to += padded_, from += size_) {
                std::memcpy(to, from, size_ * sizeof(T));
                std::memset(static_cast<void*>(to + size_), 0, (padded_ - size_) * sizeof(T));
            }
        }
    }

    void write(const Item& item, const Part<S>& part) const {
        int row = 0;
        for (int64_t token = 0; token < item.tokens; ++token) {
            int64_t place = a_.first[item.request] + item.first_token + token;
            T* to = static_cast<T*>(a_.attended) + (place * a_.query_heads + item.kv_head * group_) * size_;
            for (int head = 0; head < group_; ++head, ++row, to += size_) {
                S factor = 1 / part.weight[row];
                for (int d = 0; d < size_; d += kWidth<S>) {
                    store(to + d, load(&part.sums[row * part.stride + d]) * factor, size_ - d);
                }
            }
        }
    }

    void sum_part(const Item& item, int64_t number, Scratch& s, Part<S>& part) {
        part.clear(int(item.tokens) * group_, padded_);
        int64_t seen = a_.start[item.request] + item.first_token + item.tokens;
        int64_t end = std::min(seen, (number + 1) * kPartKeys);
        for (int64_t begin = number * kPartKeys; begin < end; begin += kTileKeys) {
            int keys = int(std::min<int64_t>(kTileKeys, end - begin));
            find_tile(item, begin, keys, s);
            score_tile(item, begin, keys, s, part);
            weigh_tile(keys, s, part);
        }
    }

    void find_tile(const Item& item, int64_t begin, int keys, Scratch& s) const {
        int64_t left = 0;
        const T* slot = nullptr;
        for (int j = 0; j < keys; ++j, --left, slot += 2 * a_.kv_heads * size_) {
            if (left == 0) {
                slot = slot_of(item.request, begin + j) + item.kv_head * size_;
                left = a_.block_size - (begin + j) % a_.block_size;
            }
            s.keys[j] = slot;
        }
        s.to_values = a_.kv_heads * size_;
        if (padded_ != size_) copy_tile(keys, s);
        for (int j = keys; j % kWidth<S>; ++j) s.keys[j] = s.keys[keys - 1];
    }

    void copy_tile(int keys, Scratch& s) const {
        T* to = s.copies.data();
        for (int j = 0; j < keys; ++j, to += 2 * padded_) {
            std::memcpy(to, s.keys[j], size_ * sizeof(T));
            std::memcpy(to + padded_, s.keys[j] + s.to_values, size_ * sizeof(T));
            s.keys[j] = to;
        }
        s.to_values = padded_;
    }

    // Scores become weights relative to each row's highest score so far.
    void score_tile(const Item& item, int64_t begin, int keys, Scratch& s, Part<S>& part) const {
        constexpr int width = kWidth<S>;
        constexpr S lowest = -std::numeric_limits<S>::infinity();
        for (int row = 0; row < part.rows; ++row) {
            S* weights = &s.weights[row * kTileKeys];
            // A row sees the keys up to its own token.
            int64_t seen = a_.start[item.request] + item.first_token + row / group_ + 1 - begin;
            int visible = int(std::max<int64_t>(0, std::min<int64_t>(keys, seen)));
            Vector<S> tops = spread(lowest);
            for (int j = 0; j < visible; j += width) {
                Vector<S> scores = dots(&s.queries[row * padded_], s.keys + j, padded_) * S(a_.scale);
                for (int unseen = visible - j; unseen < width; ++unseen) scores[unseen] = lowest;
                store(weights + j, scores);
                tops = tops > scores ? tops : scores;
            }
            for (int j = (visible + width - 1) / width * width; j < keys; j += width) {
                store(weights + j, spread(lowest));
            }
            if (visible == 0) tops = Vector<S>{};
            S top = std::max(part.highest[row], highest<S>(tops));
            s.keep[row] = visible ? std::exp(part.highest[row] - top) : S(1);
            if (visible) part.highest[row] = top;
            Vector<S> sum = {};
            for (int j = 0; j < keys; j += width) {
                Vector<S> weight = exponential(load(weights + j) - top);
                store(weights + j, weight);
                sum += weight;
            }
            part.weight[row] = part.weight[row] * s.keep[row] + total<S>(sum);
        }
    }

    void weigh_tile(int keys, Scratch& s, Part<S>& part) const {
        int row = 0;
        for (; row + kRowsAtOnce <= part.rows; row += kRowsAtOnce) weigh_rows<kRowsAtOnce>(row, keys, s, part);
        if constexpr (kRowsAtOnce > 2) {
            if (row + 3 == part.rows) weigh_rows<3>(row, keys, s, part), row += 3;
            if (row + 2 == part.rows) weigh_rows<2>(row, keys, s, part), row += 2;
        }
        if (row < part.rows) weigh_rows<1>(row, keys, s, part);
    }

    template <int Rows>
    __attribute__((noinline)) void weigh_rows(int row, int keys, Scratch& s, Part<S>& part) const {
        constexpr int width = kWidth<S>;
        int d = 0;
        for (; d + kVectorsAtOnce * width <= padded_; d += kVectorsAtOnce * width) {
            weigh_block<Rows, kVectorsAtOnce>(row, d, keys, s, part);
        }
        for (; d < padded_; d += width) weigh_block<Rows, 1>(row, d, keys, s, part);
    }

    template <int Rows, int Vectors>
    INLINE void weigh_block(int row, int d, int keys, Scratch& s, Part<S>& part) const {
        weigh<T, Rows, Vectors>(s.keys, s.to_values + d, keys, &s.weights[row * kTileKeys], &s.keep[row],
                                &part.sums[row * padded_ + d], padded_);
    }

    const Attention& a_;
    int size_, padded_, group_, tile_tokens_;
    int64_t width_, shared_ = 0;
    std::vector<Item> items_;
};

// ---- between the matrix products ----

// residual += update (if there is one); normed = residual / rms(residual) * weight. All [rows, size].
template <class T>
void add_and_normalize(T* residual, const T* update, const T* weight, T* normed, int64_t rows, int64_t size,
                       double epsilon) {
    constexpr int width = kWidth<Sum<T>>;
#pragma omp parallel for schedule(static) if (rows > 1 && rows * size >= kWorthThreads)
    for (int64_t row = 0; row < rows; ++row) {
        T* x = residual + row * size;
        if (update) {
            const T* more = update + row * size;
            for (int64_t i = 0; i < size; i += width) {
                store(x + i, load(x + i, size - i) + load(more + i, size - i), size - i);
            }
        }
        scale_to_unit(x, weight, normed + row * size, size, epsilon);
    }
}

// gated = silu(gate) * up, from rows [gate, up] of twice `size`.
template <class T>
void gate(const T* gate_up, T* gated, int64_t rows, int64_t size) {
    using S = Sum<T>;
#pragma omp parallel for schedule(static) if (rows > 1 && rows * size >= kWorthThreads)
    for (int64_t row = 0; row < rows; ++row) {
        const T *gates = gate_up + row * 2 * size, *ups = gates + size;
        for (int64_t i = 0; i < size; i += kWidth<S>) {
            Vector<S> x = load(gates + i, size - i);
            store(gated + row * size + i, x / (S(1) + exponential(-x)) * load(ups + i, size - i), size - i);
        }
    }
}

}  // namespace

#if !defined(LEEWAY_ELEMENT)
#error "name the type of weights and KV cache: -DLEEWAY_ELEMENT=Bf16, float or double"
#endif

extern "C" {

void leeway_attend(const Attention* attention) { PagedAttention<LEEWAY_ELEMENT>(*attention).run(); }

void leeway_add_and_normalize(void* residual, const void* update, const void* weight, void* normed, int64_t rows,
                              int64_t size, double epsilon) {
    using T = LEEWAY_ELEMENT;
    add_and_normalize(static_cast<T*>(residual), static_cast<const T*>(update), static_cast<const T*>(weight),
                      static_cast<T*>(normed), rows, size, epsilon);
}

void leeway_gate(const void* gate_up, void* gated, int64_t rows, int64_t size) {
    using T = LEEWAY_ELEMENT;
    gate(static_cast<const T*>(gate_up), static_cast<T*>(gated), rows, size);
}

}  // extern "C"
