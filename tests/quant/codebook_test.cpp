// k-means: against known optimal quantisers, its errors, its edges, and the same result for every number of threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "base/parallel.h"
#include "base/philox.h"
#include "message_of.h"
#include "quant/nearest_entry.h"
#include "rlx/transform.h"

using namespace rlx;

namespace {

std::vector<float> normal_values(std::size_t n) {
  PhiloxStream random(7, 7);
  std::vector<float> out;
  while (out.size() < n) {
    double r = std::sqrt(-2 * std::log(1 - double(random.next_uniform()))),
           angle = 6.283185307179586 * random.next_uniform();
    out.push_back(float(r * std::cos(angle))), out.push_back(float(r * std::sin(angle)));
  }
  out.resize(n);
  return out;
}
Array normal(Extents shape) {
  auto n = std::size_t(count(shape));
  return Array(normal_values(n), std::move(shape));
}
double squared_error(const Array& a, const Array& b) {
  double sum = 0;
  for (std::int64_t i = 0; i < a.size(); ++i) sum += std::pow(a.at(i) - b.at(i), 2);
  return sum / double(a.size());
}
void expect_error(const Array& weight, const KMeansConfig& config, const std::string& part) {
  std::string message = message_of([&] { codebook_from_weight(weight, config); });
  EXPECT_NE(message.find(part), std::string::npos) << message;
}

}  // namespace

// Max, "Quantizing for minimum distortion", 1960: the best 4 and 8 levels of a normal distribution.
TEST(CodebookFromWeight, FindsTheBestQuantisersOfNormalNumbers) {
  Array w = normal({500, 400});
  for (auto& [levels, error] : {std::pair{std::vector<double>{0.4528, 1.510}, 0.1175},
                                std::pair{std::vector<double>{0.2451, 0.7560, 1.344, 2.152}, 0.03454}}) {
    auto entries = std::int64_t(levels.size() * 2);
    auto made = codebook_from_weight(w, {.entry_dim = 1, .num_entries = entries, .iterations = 200});
    std::vector<float> found = made.codebook.to_vector<float>();
    std::ranges::sort(found);
    for (std::size_t i = 0; i < levels.size(); ++i) {
      EXPECT_NEAR(found[levels.size() + i], levels[i], 0.03);
      EXPECT_NEAR(found[levels.size() - 1 - i], -levels[i], 0.03);
    }
    EXPECT_NEAR(made.mean_squared_error, error, 0.02 * error);
  }
}

TEST(CodebookFromWeight, ItsErrorIsThatOfTheReconstruction) {
  for (std::int64_t d : {1, 2, 3, 4, 8, 12}) {
    Array w = normal({33, 48});
    auto made = codebook_from_weight(w, {.entry_dim = d, .num_entries = 16});
    EXPECT_EQ(made.indices.type(), (Type{DType::U8, {33, 48 / d}}));
    EXPECT_EQ(made.codebook.type(), (Type{DType::F32, {16, d}}));
    EXPECT_NEAR(squared_error(reconstruct(made.indices, made.codebook), w), made.mean_squared_error, 1e-6) << d;
  }
}

TEST(CodebookFromWeight, MoreEntriesAndIterationsAreNearer) {
  Array w = normal({64, 64});
  double before = 10;
  for (std::int64_t entries : {1, 4, 16, 64, 256}) {
    double start =
        codebook_from_weight(w, {.entry_dim = 2, .num_entries = entries, .iterations = 0}).mean_squared_error;
    double now = codebook_from_weight(w, {.entry_dim = 2, .num_entries = entries}).mean_squared_error;
    EXPECT_LE(now, start);
    EXPECT_LT(now, before);
    before = now;
  }
  auto one = codebook_from_weight(w, {.entry_dim = 64, .num_entries = 1});  // the mean of the rows
  EXPECT_NEAR(one.mean_squared_error, 1, 0.05);
}

TEST(CodebookFromWeight, TheThreadsDoNotMatterTheSeedDoes) {
  Array w = normal({300, 128});
  KMeansConfig config{.entry_dim = 2, .num_entries = 200, .seed = 3};
  auto first = codebook_from_weight(w, config);
  int threads = num_threads();
  for (int n : {1, 2, 5}) {
    set_num_threads(n);
    auto again = codebook_from_weight(w, config);
    EXPECT_TRUE(identical(again.indices, first.indices) && identical(again.codebook, first.codebook)) << n;
    EXPECT_EQ(again.mean_squared_error, first.mean_squared_error);
  }
  set_num_threads(threads);
  config.seed = 4;
  EXPECT_FALSE(identical(codebook_from_weight(w, config).codebook, first.codebook));
}

TEST(CodebookFromWeight, FewDifferentVectorsComeBackExactly) {
  for (std::int64_t entries : {3, 8, 256}) {
    Array w(DType::F32, {10, 12});
    for (std::size_t i = 0; i < 60; ++i) {
      w.values<float>()[2 * i] = float(i * 7 % 3) * 0.1f;
      w.values<float>()[2 * i + 1] = i * 7 % 3 == 1 ? -5.0f : 1e-3f;
    }
    auto made = codebook_from_weight(w, {.entry_dim = 2, .num_entries = entries});
    EXPECT_EQ(made.mean_squared_error, 0);
    EXPECT_TRUE(identical(reconstruct(made.indices, made.codebook), w));
  }
}

// Many vectors in one place and a few far away: entries that start in the crowd end up with nothing to do there.
TEST(CodebookFromWeight, NoEntryIsLeftWithoutVectors) {
  Array w = normal({2000, 1});
  auto values = w.values<float>();
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = i < 1990 ? values[i] * 1e-3f : 10.0f * float(i - 1980);
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    auto made = codebook_from_weight(w, {.entry_dim = 1, .num_entries = 32, .seed = seed});
    auto indices = made.indices.values<std::uint8_t>();
    EXPECT_EQ(std::set<int>(indices.begin(), indices.end()).size(), 32u) << "seed " << seed;
    EXPECT_LT(made.mean_squared_error, 1e-4);
  }
}

TEST(CodebookFromWeight, HugeAndTinyValues) {
  Array base = normal({16, 16});
  auto expected = codebook_from_weight(base, {.entry_dim = 2, .num_entries = 8});
  for (float scale : {0x1p120f, 0x1p-100f}) {
    Array w = base.clone();
    for (auto& v : w.values<float>()) v *= scale;
    auto made = codebook_from_weight(w, {.entry_dim = 2, .num_entries = 8});
    EXPECT_TRUE(identical(made.indices, expected.indices));
    for (std::int64_t i = 0; i < made.codebook.size(); ++i)
      EXPECT_EQ(made.codebook.at(i), expected.codebook.at(i) * double(scale));
  }
  Array least(DType::F32, {1, 2});  // the smallest number there is
  least.values<float>()[0] = std::numeric_limits<float>::denorm_min();
  EXPECT_TRUE(identical(reconstruct(codebook_from_weight(least, {.entry_dim = 1, .num_entries = 2}).indices,
                                    codebook_from_weight(least, {.entry_dim = 1, .num_entries = 2}).codebook),
                        least));
}

TEST(CodebookFromWeight, NothingGivesNothing) {
  for (auto& shape : {Extents{0, 4}, Extents{3, 0}}) {
    auto made = codebook_from_weight(Array(DType::F32, shape), {.entry_dim = 2, .num_entries = 4});
    EXPECT_EQ(made.indices.shape(), (Extents{shape[0], shape[1] / 2}));
    EXPECT_EQ(made.mean_squared_error, 0);
    EXPECT_EQ(reconstruct(made.indices, made.codebook).shape(), shape);
  }
}

TEST(CodebookFromWeight, SaysWhatIsWrong) {
  Array w = normal({3, 8});
  for (float bad : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    Array broken = w.clone();
    broken.values<float>()[13] = bad;
    expect_error(broken, {.entry_dim = 2, .num_entries = 4}, "at [1,5], expected finite values");
  }
  expect_error(w, {.entry_dim = 3, .num_entries = 4}, "got entry_dim 3, expected a divisor of k = 8");
  expect_error(w, {.entry_dim = 0, .num_entries = 4}, "got entry_dim 0");
  expect_error(w, {.entry_dim = 2, .num_entries = 257}, "got num_entries 257, expected 1 to 256");
  expect_error(w, {.entry_dim = 2, .num_entries = 0}, "got num_entries 0");
  expect_error(w, {.entry_dim = 2, .num_entries = 4, .iterations = -1}, "-1 iterations");
  expect_error(w.cast(DType::I32), {}, "expected floats");
  expect_error(w.reshaped({24}), {}, "expected [n, k]");
}

TEST(Reconstruct, NamesTheIndexOutOfRange) {
  Array indices(std::vector<std::uint8_t>{0, 3, 2, 4}, {2, 2}), codebook(DType::F32, {4, 3});
  std::string message = message_of([&] { reconstruct(indices, codebook); });
  EXPECT_NE(message.find("index 4 at [1,1] is out of range [0, 4)"), std::string::npos) << message;
  EXPECT_NE(message_of([&] { reconstruct(indices.cast(DType::I32), codebook); }), "no error");
}

TEST(NearestEntry, TheFirstOfEqualOnes) {
  float x[2 * kNearestLanes] = {}, distance[kNearestLanes];
  std::int32_t index[kNearestLanes];
  for (std::int64_t l = 0; l < kNearestLanes; ++l) x[l] = float(l), x[kNearestLanes + l] = 1;
  const float codebook[] = {3, 1, 5, 1, 3, 1, 100, 1};
  nearest_entry(x, kNearestLanes, 2, codebook, 4, distance, index);
  for (std::int64_t l = 0; l < kNearestLanes; ++l) {
    EXPECT_EQ(index[l], l <= 4 ? 0 : 1);
    EXPECT_EQ(distance[l], float(l <= 4 ? (l - 3) * (l - 3) : (l - 5) * (l - 5)));
  }
}
