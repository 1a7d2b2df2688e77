// Random numbers: the bits are exact on every backend, see ops/random.h.
#include "ops/random.h"

#include <fmt/format.h>

#include "ops/rules.h"

namespace rlx {

static void check_seed(const Type& seed) {
  if (!is_int(seed.dtype) || !seed.shape.empty())
    throw UserError(fmt::format("the seed must be an integer scalar, got {}", to_string(seed)));
}
static Type random_type(const TypeArgs& t, DType dtype, const Shape& shape) {
  check_seed(t.in[0]);
  check_sizes(shape);
  if (!is_float(dtype)) throw UserError(fmt::format("gives floats, got {}", to_string(dtype)));
  return {dtype, shape};
}
static std::uint64_t seed_of(const EvalArgs& e) { return e.in[0].cast(DType::U64).values<std::uint64_t>()[0]; }

constexpr OpDef random_uniform_rules = {
    .infer = [](const TypeArgs& t) -> Type {
      auto& a = t.attrs.as<UniformAttrs>();
      if (!std::isfinite(a.high - a.low) || a.low > a.high)
        throw UserError(fmt::format("got the range [{}, {}), expected finite low <= high", a.low, a.high));
      return random_type(t, a.dtype, a.shape);
    },
    .eval =
        [](const EvalArgs& e) {
          auto& a = e.attrs.as<UniformAttrs>();
          std::uint64_t seed = seed_of(e);
          auto fill = [&]<class T>(T) {  // product and sum are rounded one after the other: no fused multiply-add
            Array out(dtype_of<T>(), e.shape);
            auto values = out.values<T>();
            T scale = T(a.high - a.low), low = T(a.low);
            for (std::size_t i = 0; i < values.size(); ++i) {
              T product = T(uniform_from_bits(random_words(seed, std::uint64_t(a.stream), i)[0])) * scale;
              values[i] = product + low;
            }
            return out.cast(e.dtype);
          };
          return e.dtype == DType::F64 ? fill(double()) : fill(float());
        },
    .grad = GRAD(none),
};

constexpr OpDef random_normal_rules = {
    .infer = [](const TypeArgs& t) -> Type {
      auto& a = t.attrs.as<NormalAttrs>();
      if (!std::isfinite(a.mean) || !std::isfinite(a.std) || a.std < 0)
        throw UserError(
            fmt::format("got mean {} and deviation {}, expected finite ones, the second 0 or more", a.mean, a.std));
      return random_type(t, a.dtype, a.shape);
    },
    .eval =
        [](const EvalArgs& e) {
          auto& a = e.attrs.as<NormalAttrs>();
          std::uint64_t seed = seed_of(e);
          Array out(DType::F64, e.shape);
          auto values = out.values<double>();
          for (std::size_t i = 0; i < values.size(); i += 2) {
            auto words = random_words(seed, std::uint64_t(a.stream), i / 2);
            double radius = std::sqrt(-2 * std::log(normal_u(words[0]))),
                   angle = 6.283185307179586 * double(uniform_from_bits(words[1]));
            values[i] = a.mean + a.std * (radius * std::cos(angle));
            if (i + 1 < values.size()) values[i + 1] = a.mean + a.std * (radius * std::sin(angle));
          }
          return out.cast(e.dtype);
        },
    .grad = GRAD(none),
};

constexpr OpDef random_bernoulli_rules = {
    .infer = [](const TypeArgs& t) -> Type {
      auto& a = t.attrs.as<BernoulliAttrs>();
      check_seed(t.in[0]);
      check_sizes(a.shape);
      if (!(a.p >= 0 && a.p <= 1)) throw UserError(fmt::format("got the probability {}, expected one in [0, 1]", a.p));
      return {DType::Bool, a.shape};
    },
    .eval =
        [](const EvalArgs& e) {
          auto& a = e.attrs.as<BernoulliAttrs>();
          std::uint64_t seed = seed_of(e);
          std::uint32_t threshold = bernoulli_threshold(a.p);
          Array out(DType::Bool, e.shape);
          auto values = out.values<bool>();
          for (std::size_t i = 0; i < values.size(); ++i)
            values[i] = (random_words(seed, std::uint64_t(a.stream), i)[0] >> 8) < threshold;
          return out;
        },
    .grad = GRAD(none),
};

#define RANDOM(...) DEFINE_OP(Random, __VA_ARGS__)
#include "ops/ops.def"

}  // namespace rlx
