// Codebooks from dense weights: k-means over vectors of entry_dim numbers. All work is cut by the weight's shape and
// added in one order, so the result depends on the weight and the config alone.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/parallel.h"
#include "base/philox.h"
#include "quant/nearest_entry.h"
#include "rlx/transform.h"

namespace rlx {
namespace {

constexpr std::int64_t kLanes = kNearestLanes;

class KMeans {
 public:
  // `x` holds `count` vectors of `d` numbers whose magnitudes are at most 1 or so.
  KMeans(const std::vector<float>& x, std::int64_t count, const KMeansConfig& config)
      : n_(count), d_(config.entry_dim), entries_(config.num_entries), random_(config.seed, 0) {
    chunk_ = std::max<std::int64_t>(4096, (n_ + 63) / 64);
    chunk_ = (chunk_ + kLanes - 1) / kLanes * kLanes;
    chunks_ = (n_ + chunk_ - 1) / chunk_;
    padded_ = chunks_ * chunk_;
    x_.resize(std::size_t(padded_ * d_));
    for (std::int64_t i = 0; i < n_; ++i)
      for (std::int64_t t = 0; t < d_; ++t) x_[std::size_t(t * padded_ + i)] = x[std::size_t(i * d_ + t)];
    distance_.assign(std::size_t(padded_), 0);
    index_.assign(std::size_t(padded_), -1);
    codebook.assign(std::size_t(entries_ * d_), 0);
  }

  void run(int iterations) {
    choose_start();
    for (int i = 0; i < iterations && assign(); ++i) move_entries();
    assign();
  }

  std::vector<float> codebook;
  std::uint8_t index(std::int64_t i) const { return std::uint8_t(index_[std::size_t(i)]); }
  double total_distance() const {
    double sum = 0;
    for (double part : chunk_sums([&](std::int64_t i) { return double(distance_[std::size_t(i)]); })) sum += part;
    return sum;
  }

 private:
  template <class F>
  std::vector<double> chunk_sums(F&& value) const {
    std::vector<double> out(static_cast<std::size_t>(chunks_));
    parallel_for(chunks_, [&](std::int64_t c) {
      for (std::int64_t i = c * chunk_; i < std::min(n_, (c + 1) * chunk_); ++i) out[std::size_t(c)] += value(i);
    });
    return out;
  }

  void set_entry(std::int64_t entry, std::int64_t vector) {
    for (std::int64_t t = 0; t < d_; ++t) codebook[std::size_t(entry * d_ + t)] = x_[std::size_t(t * padded_ + vector)];
  }

  // Squared distances of kLanes vectors from `first` on to an entry.
  void distances(std::int64_t first, std::int64_t entry, float* out) const {
    const float* c = codebook.data() + entry * d_;
    for (std::int64_t l = 0; l < kLanes; ++l) {
      float a = x_[std::size_t(first + l)] - c[0];
      out[l] = a * a;
    }
    for (std::int64_t t = 1; t < d_; ++t) {
      const float* x = x_.data() + t * padded_ + first;
      float ct = c[t];
      for (std::int64_t l = 0; l < kLanes; ++l) out[l] += (x[l] - ct) * (x[l] - ct);
    }
  }

  // k-means++: each entry is a vector, drawn with a chance in proportion to its squared distance to the nearest so far.
  void choose_start() {
    std::ranges::fill(distance_, std::numeric_limits<float>::max());
    std::vector<double> sums(static_cast<std::size_t>(chunks_));
    for (std::int64_t entry = 0; entry < entries_; ++entry) {
      set_entry(entry, entry == 0 ? std::int64_t(random_.next_below(std::uint64_t(n_))) : draw(sums));
      parallel_for(chunks_, [&](std::int64_t c) {
        float to_entry[kLanes];
        double sum = 0;
        for (std::int64_t first = c * chunk_; first < (c + 1) * chunk_; first += kLanes) {
          distances(first, entry, to_entry);
          float* nearest = distance_.data() + first;
          for (std::int64_t l = 0; l < kLanes; ++l) nearest[l] = to_entry[l] < nearest[l] ? to_entry[l] : nearest[l];
          for (std::int64_t l = 0; l < std::min(kLanes, n_ - first); ++l) sum += nearest[l];
        }
        sums[std::size_t(c)] = sum;
      });
    }
  }

  std::int64_t draw(const std::vector<double>& sums) {
    double total = std::accumulate(sums.begin(), sums.end(), 0.0);
    std::uint64_t word = std::uint64_t(random_.next()) << 32;
    word |= random_.next();
    double at = double(word >> 11) * 0x1p-53 * total;
    std::int64_t last = 0;  // the last one with a chance: rounding may leave a rest
    for (std::int64_t c = 0; c < chunks_; ++c) {
      if (at >= sums[std::size_t(c)] && c + 1 < chunks_) {
        at -= sums[std::size_t(c)];
        continue;
      }
      for (std::int64_t i = c * chunk_; i < std::min(n_, (c + 1) * chunk_); ++i) {
        if (distance_[std::size_t(i)] > 0) last = i;
        if ((at -= distance_[std::size_t(i)]) < 0) return i;
      }
    }
    return last;
  }

  // Gives each vector its nearest entry, the first of equal ones. False where none changed.
  bool assign() {
    std::vector<char> changed(static_cast<std::size_t>(chunks_));
    parallel_for(chunks_, [&](std::int64_t c) {
      std::int32_t nearest[kLanes];
      for (std::int64_t first = c * chunk_; first < (c + 1) * chunk_; first += kLanes) {
        nearest_entry(x_.data() + first, padded_, d_, codebook.data(), entries_, distance_.data() + first, nearest);
        for (std::int64_t l = 0; l < std::min(kLanes, n_ - first); ++l) {
          auto& index = index_[std::size_t(first + l)];
          changed[std::size_t(c)] |= index != nearest[l];
          index = std::int16_t(nearest[l]);
        }
      }
    });
    return std::ranges::any_of(changed, [](char c) { return c != 0; });
  }

  // Each entry to the mean of its vectors.
  void move_entries() {
    std::size_t width = std::size_t(entries_ * d_);
    std::vector<double> sums(std::size_t(chunks_) * width);
    std::vector<std::int64_t> counts(std::size_t(chunks_ * entries_));
    parallel_for(chunks_, [&](std::int64_t c) {
      double* sum = sums.data() + std::size_t(c) * width;
      for (std::int64_t i = c * chunk_; i < std::min(n_, (c + 1) * chunk_); ++i) {
        std::int64_t entry = index_[std::size_t(i)];
        ++counts[std::size_t(c * entries_ + entry)];
        for (std::int64_t t = 0; t < d_; ++t) sum[entry * d_ + t] += x_[std::size_t(t * padded_ + i)];
      }
    });
    for (std::int64_t c = 1; c < chunks_; ++c) {
      for (std::size_t i = 0; i < width; ++i) sums[i] += sums[std::size_t(c) * width + i];
      for (std::int64_t e = 0; e < entries_; ++e) counts[std::size_t(e)] += counts[std::size_t(c * entries_ + e)];
    }
    std::vector<std::int64_t> empty;
    for (std::int64_t e = 0; e < entries_; ++e) {
      if (counts[std::size_t(e)] == 0) empty.push_back(e);
      for (std::int64_t t = 0; t < d_ && counts[std::size_t(e)] > 0; ++t)
        codebook[std::size_t(e * d_ + t)] = float(sums[std::size_t(e * d_ + t)] / double(counts[std::size_t(e)]));
    }
    if (!empty.empty()) reseed(empty);
  }

  // Entries without vectors take the vectors that lie farthest from their own entries.
  void reseed(const std::vector<std::int64_t>& empty) {
    std::vector<std::int64_t> far(static_cast<std::size_t>(n_));
    std::iota(far.begin(), far.end(), 0);
    auto wanted = std::min(far.size(), empty.size());
    std::ranges::partial_sort(far, far.begin() + std::ptrdiff_t(wanted), [&](std::int64_t a, std::int64_t b) {
      float da = distance_[std::size_t(a)], db = distance_[std::size_t(b)];
      return da != db ? da > db : a < b;
    });
    for (std::size_t i = 0; i < wanted && distance_[std::size_t(far[i])] > 0; ++i) set_entry(empty[i], far[i]);
  }

  std::int64_t n_, d_, entries_, chunk_ = 0, chunks_ = 0, padded_ = 0;
  PhiloxStream random_;
  std::vector<float> x_, distance_;  // number t of vector i at [t * padded_ + i]
  std::vector<std::int16_t> index_;
};

void check_sizes(const Extents& shape, const KMeansConfig& config) {
  if (shape.size() != 2)
    throw UserError(fmt::format("[codebook_from_weight] got a weight of shape {}, expected [n, k]", to_string(shape)));
  if (config.entry_dim < 1 || shape[1] % config.entry_dim != 0)
    throw UserError(
        fmt::format("[codebook_from_weight] got entry_dim {}, expected a divisor of k = {} (the weight is {})",
                    config.entry_dim, shape[1], to_string(shape)));
  if (config.num_entries < 1 || config.num_entries > 256)
    throw UserError(fmt::format("[codebook_from_weight] got num_entries {}, expected 1 to 256: an index is one byte",
                                config.num_entries));
  if (config.iterations < 0)
    throw UserError(fmt::format("[codebook_from_weight] got {} iterations, expected 0 or more", config.iterations));
}

// The values times 2^-exponent, so that no square of theirs overflows or vanishes.
std::vector<float> scaled_values(const Array& weight, int& exponent) {
  std::vector<float> out = weight.to_vector<float>();
  float most = 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (!std::isfinite(out[i])) {
      std::int64_t k = weight.shape()[1];
      throw UserError(fmt::format("[codebook_from_weight] got {} at [{},{}], expected finite values", out[i],
                                  std::int64_t(i) / k, std::int64_t(i) % k));
    }
    most = std::max(most, std::fabs(out[i]));
  }
  exponent = most > 0 ? std::ilogb(most) : 0;
  for (auto& v : out) v = std::ldexp(v, -exponent);
  return out;
}

// A seed of its own for each weight, whatever the others are: FNV-1a of the name.
std::uint64_t seed_of(const std::string& name, std::uint64_t seed) {
  std::uint64_t hash = 14695981039346656037u;
  for (unsigned char c : name) hash = (hash ^ c) * 1099511628211u;
  return hash + seed;
}

Array transposed(const Array& x) {
  Array out(x.dtype(), {x.shape()[1], x.shape()[0]});
  auto from = x.values<float>(), to = out.values<float>();
  std::int64_t rows = x.shape()[0], columns = x.shape()[1];
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c) to[std::size_t(c * rows + r)] = from[std::size_t(r * columns + c)];
  return out;
}

}  // namespace

CodebookWeight codebook_from_weight(const Array& weight, const KMeansConfig& config) {
  if (!is_float(weight.dtype()))
    throw UserError(fmt::format("[codebook_from_weight] got {}, expected floats", to_string(weight.type())));
  check_sizes(weight.shape(), config);
  std::int64_t n = weight.shape()[0], columns = weight.shape()[1] / config.entry_dim, count = n * columns;
  CodebookWeight out{Array(DType::U8, {n, columns}), Array(DType::F32, {config.num_entries, config.entry_dim})};
  if (count == 0) return out;
  int exponent = 0;
  KMeans means(scaled_values(weight, exponent), count, config);
  means.run(config.iterations);
  for (std::int64_t i = 0; i < count; ++i) out.indices.values<std::uint8_t>()[std::size_t(i)] = means.index(i);
  for (std::size_t i = 0; i < means.codebook.size(); ++i)
    out.codebook.values<float>()[i] = std::ldexp(means.codebook[i], exponent);
  out.mean_squared_error = std::ldexp(means.total_distance() / double(count * config.entry_dim), 2 * exponent);
  return out;
}

Array reconstruct(const Array& indices, const Array& codebook) {
  if (indices.dtype() != DType::U8 || indices.shape().size() != 2 || codebook.shape().size() != 2)
    throw UserError(
        fmt::format("[reconstruct] got indices {} and codebook {}, expected u8 [n, k / entry_dim] and "
                    "[num_entries, entry_dim]",
                    to_string(indices.type()), to_string(codebook.type())));
  std::int64_t n = indices.shape()[0], columns = indices.shape()[1], entries = codebook.shape()[0],
               d = codebook.shape()[1];
  Array out(codebook.dtype(), {n, columns * d});
  std::size_t width = std::size_t(d) * size_of(codebook.dtype());
  auto at = indices.values<std::uint8_t>();
  for (std::size_t i = 0; i < at.size(); ++i) {
    if (at[i] >= entries)
      throw UserError(fmt::format("[reconstruct] codebook index {} at [{},{}] is out of range [0, {})", at[i],
                                  std::int64_t(i) / columns, std::int64_t(i) % columns, entries));
    std::copy_n(codebook.bytes() + at[i] * width, width, out.bytes() + i * width);
  }
  return out;
}

std::map<std::string, Array, std::less<>> codebook_params(const std::map<std::string, Array, std::less<>>& weights,
                                                          const CodebookReport& report, std::uint64_t seed) {
  std::map<std::string, Array, std::less<>> out;
  for (auto& r : report.replaced) {
    auto it = weights.find(r.weight);
    if (it == weights.end()) throw UserError(fmt::format("[codebook_params] there is no weight \"{}\"", r.weight));
    Extents expected = r.out_axis == 0 ? Extents{r.n, r.k} : Extents{r.k, r.n};
    if (it->second.shape() != expected || !is_float(it->second.dtype()))
      throw UserError(fmt::format("[codebook_params] weight \"{}\": got {}, expected floats {}", r.weight,
                                  to_string(it->second.type()), to_string(expected)));
    Array weight = it->second.cast(DType::F32);
    if (r.out_axis == 1) weight = transposed(weight);
    CodebookWeight made = codebook_from_weight(
        weight, {.entry_dim = r.entry_dim, .num_entries = r.num_entries, .seed = seed_of(r.weight, seed)});
    out.emplace(r.weight + ".indices", made.indices);
    out.emplace(r.weight + ".codebook", made.codebook);
  }
  return out;
}

}  // namespace rlx
