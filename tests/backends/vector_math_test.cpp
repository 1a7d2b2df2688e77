// The f32 functions of the CPU backend's loops against the C library in f64: bit patterns evenly through all of f32 and
// the special ones; of pairs, the special ones and random ones. The bounds are those of the op table.
#include "backends/cpu/vector_math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "backends/cpu/row_kernels.h"

namespace {

double bound(const std::string& op) {
  struct Row {
    const char* name;
    double ulp;
  };
  static constexpr Row rows[] = {
#define UNARY(name, types, formula, to_x, ulp, doc) {#name, ulp},
#define BINARY(name, types, commutes, formula, to_a, to_b, ulp, doc) {#name, ulp},
#include "ops/ops.def"
  };
  for (const Row& row : rows)
    if (op == row.name) return row.ulp;
  ADD_FAILURE() << "no op " << op;
  return 0;
}

/// |got - want| in units in the last place of want; infinite where one is NaN, or a zero or infinity of another sign.
double ulps(float got, double want) {
  float rounded = float(want);
  constexpr double kWrong = std::numeric_limits<double>::infinity();
  if (std::isnan(rounded) || std::isnan(got)) return std::isnan(rounded) && std::isnan(got) ? 0 : kWrong;
  if (rounded == got && std::signbit(rounded) != std::signbit(got)) return kWrong;
  if (std::isinf(rounded) || std::isinf(got)) return rounded == got ? 0 : kWrong;
  int exponent;
  std::frexp(rounded, &exponent);
  // The f64 result may itself be off where the f32 lies between two halves.
  return std::fabs(got - want) / std::ldexp(1.0, rounded == 0 ? -149 : std::max(exponent - 24, -149)) - 1e-3;
}

struct Worst {
  double ulp = -1;
  float x = 0, y = 0, got = 0;
  double want = 0;
  void take(float at_x, float at_y, float result, double expected) {
    double u = ulps(result, expected);
    if (u > ulp) *this = {u, at_x, at_y, result, expected};
  }
};

float from_bits(std::uint32_t u) {
  float x;
  std::memcpy(&x, &u, sizeof x);
  return x;
}

std::vector<float> specials() {
  std::vector<float> out;
  for (float x : {0.0f,
                  0x1p-149f,
                  0x1.fffffcp-127f,
                  0x1p-126f,
                  1e-30f,
                  0.3f,
                  0.5f,
                  0x1.fffffep-1f,
                  1.0f,
                  0x1.000002p0f,
                  1.5f,
                  2.0f,
                  2.5f,
                  3.0f,
                  3.1415927f,
                  7.0f,
                  88.0f,
                  88.72284f,
                  0x1.f37c8ap95f /* nearest of all to a multiple of pi / 2 */,
                  103.97208f,
                  127.0f,
                  128.0f,
                  149.0f,
                  150.0f,
                  151.0f,
                  0x1.000002p20f,
                  0x1p22f,
                  0x1.fffffep22f,
                  0x1p23f,
                  0x1.000002p23f,
                  0x1.fffffep23f,
                  0x1p24f,
                  0x1p25f,
                  1e10f,
                  1e30f,
                  0x1.fffffep127f,
                  std::numeric_limits<float>::infinity(),
                  std::numeric_limits<float>::quiet_NaN()}) {
    out.push_back(x);
    out.push_back(-x);
  }
  return out;
}

template <class F, class Reference>
void check_unary(const char* op, F f, Reference reference) {
  Worst worst;
  auto at = [&](float x) { worst.take(x, 0, float(f(x)), double(reference(double(x)))); };
  for (float x : specials()) at(x);
  for (std::uint64_t u = 0; u < (std::uint64_t(1) << 32); u += 4099) at(from_bits(std::uint32_t(u)));
  EXPECT_LE(worst.ulp, bound(op)) << op << " of " << worst.x << " is " << worst.got << ", expected " << worst.want;
}

template <class F, class Reference>
void check_binary(const char* op, F f, Reference reference) {
  Worst worst;
  auto at = [&](float x, float y) { worst.take(x, y, float(f(x, y)), reference(double(x), double(y))); };
  std::vector<float> some = specials();
  for (float x : some)
    for (float y : some) at(x, y);
  std::mt19937 random(7);
  auto any = [&] { return from_bits(std::uint32_t(random())); };
  auto near = [&] { return std::ldexp(float(int(random()) >> 8), -22 + int(random() % 8)); };  // below 2^8 or so
  for (int i = 0; i < 100000; ++i) {
    float special = some[random() % some.size()];
    at(any(), any());
    at(near(), near());
    at(any(), special);
    at(special, near());
    at(float(int(random() % 64) - 32), float(int(random() % 64) - 32));
  }
  EXPECT_LE(worst.ulp, bound(op)) << op << " of " << worst.x << " and " << worst.y << " is " << worst.got
                                  << ", expected " << worst.want;
}

#define CHECK(name) \
  check_unary(      \
      #name, [](float x) { return rlx::vec::name(x); }, [](double x) { return std::name(x); })

TEST(VectorMath, Exponentials) {
  CHECK(exp);
  CHECK(exp2);
  CHECK(expm1);
  CHECK(sinh);
  CHECK(cosh);
  CHECK(tanh);
}
TEST(VectorMath, Logarithms) {
  CHECK(log);
  CHECK(log2);
  CHECK(log1p);
  CHECK(asinh);
  CHECK(acosh);
  CHECK(atanh);
}
TEST(VectorMath, Angles) {
  CHECK(sin);
  CHECK(cos);
  CHECK(tan);
  CHECK(asin);
  CHECK(acos);
  CHECK(atan);
}
TEST(VectorMath, Others) {
  CHECK(erf);
  CHECK(sqrt);
  CHECK(abs);
  CHECK(floor);
  CHECK(ceil);
  CHECK(trunc);
  CHECK(isnan);
  CHECK(isinf);
  CHECK(isfinite);
  check_unary(
      "rsqrt", [](float x) { return 1 / rlx::vec::sqrt(x); }, [](double x) { return 1 / std::sqrt(x); });
  // Where e^-x overflows f32 the result is 0.
  check_unary(
      "sigmoid", [](float x) { return 1 / (1 + rlx::vec::exp(-x)); },
      [](double x) { return x < -88.722839 ? 0 : 1 / (1 + std::exp(-x)); });
  check_unary(
      "round", [](float x) { return rlx::vec::round(x); }, [](double x) { return std::nearbyint(x); });
  check_unary(
      "sign", [](float x) { return rlx::vec::sign(x); }, [](double x) { return x > 0   ? 1
                                                                               : x < 0 ? -1
                                                                                       : x; });
}

TEST(VectorMath, Pairs) {
  using namespace rlx;
  auto mod = [](double a, double b) {  // as Python's: the sign of b
    double r = std::fmod(a, b);
    return r == 0 ? std::copysign(0.0, b) : (r < 0) != (b < 0) ? r + b : r;
  };
  check_binary(
      "div", [](float a, float b) { return vec::div(a, b); }, [](double a, double b) { return a / b; });
  check_binary(
      "floor_div", [](float a, float b) { return vec::floor_div(a, b); },
      [](double a, double b) { return std::floor(a / b); });
  check_binary(
      "fmod", [](float a, float b) { return vec::fmod(a, b); }, [](double a, double b) { return std::fmod(a, b); });
  check_binary(
      "mod", [](float a, float b) { return vec::mod(a, b); }, mod);
  check_binary(
      "pow", [](float a, float b) { return vec::pow(a, b); }, [](double a, double b) { return std::pow(a, b); });
  check_binary(
      "atan2", [](float a, float b) { return vec::atan2(a, b); }, [](double a, double b) { return std::atan2(a, b); });
  // NaN wins, and +0 is above -0.
  check_binary(
      "maximum", [](float a, float b) { return vec::maximum(a, b); },
      [](double a, double b) {
        return std::isnan(a) || std::isnan(b) ? NAN : a == b ? (std::signbit(a) ? b : a) : std::max(a, b);
      });
  check_binary(
      "minimum", [](float a, float b) { return vec::minimum(a, b); },
      [](double a, double b) {
        return std::isnan(a) || std::isnan(b) ? NAN : a == b ? (std::signbit(a) ? a : b) : std::min(a, b);
      });
}

TEST(VectorMath, SameBitsOnEachSet) {
  using namespace rlx::cpu;
  std::vector<float> x, y, some = specials();
  for (float a : some)
    for (float b : some) x.push_back(a), y.push_back(b);
  std::mt19937 random(3);
  for (int i = 0; i < 20000; ++i) {
    x.push_back(from_bits(std::uint32_t(random())));
    y.push_back(i % 2 ? from_bits(std::uint32_t(random())) : x.back() * 0.37f);
  }
  auto n = i64(x.size());
  std::vector<float> expected(x.size()), got(x.size());
  auto compare = [&](const std::string& op) {
    for (std::size_t i = 0; i < x.size(); ++i)
      ASSERT_TRUE(std::memcmp(&got[i], &expected[i], sizeof(float)) == 0 ||
                  (std::isnan(got[i]) && std::isnan(expected[i])))
          << op << " of " << x[i] << " and " << y[i] << ": " << got[i] << ", expected " << expected[i];
  };
  const RowKernels& portable = row_kernels(Isa::Portable);
  for (Isa isa : {Isa::Avx2, Isa::Avx512}) {
    if (isa > detail::detect_cpu().isa) continue;
    const RowKernels& other = row_kernels(isa);
    for (int op = 0; op < kUnaryCount; ++op) {
      if (!portable.unary[op]) continue;
      portable.unary[op](expected.data(), x.data(), n);
      other.unary[op](got.data(), x.data(), n);
      compare("unary op " + std::to_string(op));
    }
    for (int op = 0; op < kBinaryCount; ++op) {
      if (!portable.binary[op].vv) continue;
      portable.binary[op].vv(expected.data(), x.data(), y.data(), n);
      other.binary[op].vv(got.data(), x.data(), y.data(), n);
      compare("binary op " + std::to_string(op));
    }
  }
}

}  // namespace
