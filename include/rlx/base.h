// What everything else stands on: errors, dtypes and number formats.
#pragma once
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace rlx {

// ---------------------------------------------------------------------------------------------- errors

/// The base of all errors that RLX throws. No public call aborts the process.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};
/// The caller's mistake: a bad shape, dtype, argument or file.
struct UserError : Error {
  using Error::Error;
};
/// Legal, but not supported here; the message says by what.
struct Unsupported : Error {
  using Error::Error;
};
/// A device, a file system or the network failed.
struct DeviceError : Error {
  using Error::Error;
};
/// A fault of RLX itself.
struct InternalError : Error {
  using Error::Error;
};

// ---------------------------------------------------------------------------------------------- 16-bit floats

/// IEEE binary16. Arithmetic is done in a wider type; storing rounds to nearest even.
struct f16 {
  std::uint16_t bits = 0;
  constexpr f16() = default;
  constexpr explicit f16(float v) : bits(from_float(v)) {}
  constexpr explicit f16(double v) : bits(from_double(v)) {}
  constexpr operator float() const { return to_float(bits); }

  static constexpr std::uint16_t from_float(float v);
  static constexpr std::uint16_t from_double(double v);
  static constexpr float to_float(std::uint16_t bits);
};

/// bfloat16: the upper half of an f32. Arithmetic is done in a wider type; storing rounds to nearest even.
struct bf16 {
  std::uint16_t bits = 0;
  constexpr bf16() = default;
  constexpr explicit bf16(float v) : bits(from_float(v)) {}
  constexpr explicit bf16(double v);
  constexpr operator float() const { return std::bit_cast<float>(std::uint32_t(bits) << 16); }

  static constexpr std::uint16_t from_float(float v) {
    auto u = std::bit_cast<std::uint32_t>(v);
    if ((u & 0x7fffffffu) > 0x7f800000u) return std::uint16_t((u >> 16) | 0x40);  // a quiet NaN stays one
    return std::uint16_t((u + 0x7fffu + ((u >> 16) & 1)) >> 16);
  }
};

namespace detail {
/// A double as a float, rounded to odd, so that a second rounding to fewer bits gives the correctly rounded result.
constexpr float to_float_odd(double v) {
  float f = float(v);
  if (v != v || double(f) == v) return f;
  auto u = std::bit_cast<std::uint32_t>(f);
  if ((u & 0x7fffffffu) == 0x7f800000u) return std::bit_cast<float>(u - 1);  // overflow of a finite value: the largest finite, odd
  bool away = v > 0 ? double(f) > v : double(f) < v;
  if (away) u -= 1;  // towards zero; zero itself is never away
  return std::bit_cast<float>(u | 1);
}
}  // namespace detail

constexpr bf16::bf16(double v) : bits(from_float(detail::to_float_odd(v))) {}

constexpr std::uint16_t f16::from_float(float v) {
  auto u = std::bit_cast<std::uint32_t>(v);
  auto sign = std::uint16_t((u >> 16) & 0x8000u);
  std::uint32_t a = u & 0x7fffffffu;
  if (a > 0x7f800000u) return std::uint16_t(sign | 0x7e00u | ((a >> 13) & 0x3ffu));
  if (a >= 0x477ff000u) return std::uint16_t(sign | 0x7c00u);  // 65520 and above round to infinity
  if (a < 0x38800000u) {                                       // subnormal: multiples of 2^-24
    if (a < 0x33000000u) return sign;
    std::uint32_t shift = 126 - (a >> 23), m = (a & 0x7fffffu) | 0x800000u;
    std::uint32_t q = m >> shift, rest = m & ((1u << shift) - 1), half = 1u << (shift - 1);
    return std::uint16_t(sign | (q + (rest > half || (rest == half && (q & 1)))));
  }
  return std::uint16_t(sign | ((a - 0x38000000u + 0xfffu + ((a >> 13) & 1)) >> 13));
}
constexpr std::uint16_t f16::from_double(double v) { return from_float(detail::to_float_odd(v)); }
constexpr float f16::to_float(std::uint16_t h) {
  std::uint32_t sign = std::uint32_t(h & 0x8000u) << 16, e = (h >> 10) & 31, m = h & 0x3ffu;
  if (e == 31) return std::bit_cast<float>(sign | 0x7f800000u | (m << 13));
  if (e == 0) {
    float v = float(m) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(v) | sign);
  }
  return std::bit_cast<float>(sign | ((e + 112) << 23) | (m << 13));
}

struct c64 {
  float re = 0, im = 0;
  bool operator==(const c64&) const = default;
};

// ---------------------------------------------------------------------------------------------- dtypes

// name in text, enumerator, C++ type that stores an element
#define RLX_DTYPES(X)                                                                     \
  X("bool", Bool, bool)                                                                   \
  X("u8", U8, std::uint8_t) X("u16", U16, std::uint16_t) X("u32", U32, std::uint32_t) X("u64", U64, std::uint64_t) \
  X("i8", I8, std::int8_t) X("i16", I16, std::int16_t) X("i32", I32, std::int32_t) X("i64", I64, std::int64_t)     \
  X("f16", F16, f16) X("bf16", BF16, bf16) X("f32", F32, float) X("f64", F64, double) X("c64", C64, c64)

/// The type of one element. `Any` only stands in patterns.
enum class DType : std::uint8_t {
  Any,
#define RLX_ENUM(text, id, type) id,
  RLX_DTYPES(RLX_ENUM)
#undef RLX_ENUM
};
inline constexpr std::array kAllDTypes = {
#define RLX_ENUM(text, id, type) DType::id,
    RLX_DTYPES(RLX_ENUM)
#undef RLX_ENUM
};

constexpr bool is_float(DType d) { return d >= DType::F16 && d <= DType::F64; }
constexpr bool is_signed_int(DType d) { return d >= DType::I8 && d <= DType::I64; }
constexpr bool is_unsigned_int(DType d) { return d >= DType::U8 && d <= DType::U64; }
constexpr bool is_int(DType d) { return d >= DType::U8 && d <= DType::I64; }
/// Bytes of one element.
std::size_t size_of(DType);
std::string_view to_string(DType);
/// Throws UserError on an unknown name.
DType dtype_from_string(std::string_view);
/// The dtype that an op on both computes in: JAX's lattice (docs/dtypes.md). Throws UserError where there is none.
DType promote(DType, DType);

template <class T> constexpr DType dtype_of() {
#define RLX_ENUM(text, id, type) \
  if constexpr (std::is_same_v<T, type>) return DType::id;
  RLX_DTYPES(RLX_ENUM)
#undef RLX_ENUM
  return DType::Any;
}

/// Calls f with a value of the C++ type that stores `dtype`.
template <class F> decltype(auto) visit_dtype(DType dtype, F&& f) {
  switch (dtype) {
#define RLX_ENUM(text, id, type) \
  case DType::id: return f(type{});
    RLX_DTYPES(RLX_ENUM)
#undef RLX_ENUM
    case DType::Any: break;
  }
  throw InternalError("a value cannot have dtype any");
}

// ---------------------------------------------------------------------------------------------- number formats

/// A format of at most 8 bits a number, stored as u8 codes (docs/formats.md): floats with the code in the low bits, the
/// 28 custom floats e1m0 … e7m0 (sign, exponent, mantissa; all codes finite), the exponent-only scale e8m0, and integers
/// in two's complement.
enum class Format : std::uint8_t {
  F8E4M3, F8E5M2, F8E4M3FNUZ, F8E5M2FNUZ, F6E2M3, F6E3M2, F4E2M1, E8M0, Int8, Int4, Ternary, FirstCustom
};
inline constexpr int kFormatCount = int(Format::FirstCustom) + 28;
std::span<const std::string_view> enum_names(Format);
std::string_view to_string(Format);
/// Throws UserError that lists the names.
Format format_from_string(std::string_view);
/// The custom float of that many exponent and mantissa bits. Throws UserError unless exponent >= 1, mantissa >= 0 and
/// they are at most 7 together.
Format custom_format(int exponent_bits, int mantissa_bits);

/// One row a format. Magnitudes of floats are m·2^(1-bias-M) for exponent field 0, else (1 + m/2^M)·2^(field-bias).
struct FormatInfo {
  // Which codes are no finite numbers: none; E4M3's all ones are NaN; IEEE's infinities and NaNs; FNUZ, whose one NaN
  // is in the place of -0; e8m0's 255.
  enum class Specials : std::uint8_t { None, AllOnes, Ieee, Fnuz, Scale };
  std::string_view name;
  int bits = 8, exponent_bits = 0, mantissa_bits = 0, bias = 0;  // an integer has no exponent bits
  Specials specials = Specials::None;
  int max_code = 0;  // of the greatest finite value
  double max = 0, min_normal = 0, min_subnormal = 0;

  bool is_float() const { return exponent_bits > 0; }
  bool has_nan() const { return specials != Specials::None; }
  /// The exponent of the greatest value, as MX's floor rule needs it.
  int max_exponent() const;
};
const FormatInfo& info(Format);

enum class Rounding : std::uint8_t { NearestEven, TowardsZero, AwayFromZero };
std::span<const std::string_view> enum_names(Rounding);
/// The code of a value. What is too large after rounding, and an infinity, becomes the largest finite value, or where it
/// does not `saturate` infinity or else NaN, if the format has them. NaN is the format's NaN, or +max where it has none,
/// or 0 in integers. e8m0 has no sign and no zero: 0 is its least value, a negative number its NaN.
std::uint8_t encode(Format, double value, bool saturate = true, Rounding = Rounding::NearestEven);
double decode(Format, std::uint8_t code);
/// The values of all 256 codes; bits above the format's are ignored.
std::span<const float, 256> decode_table(Format);

}  // namespace rlx
