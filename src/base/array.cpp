// Host tensors: memory, element access and conversion between dtypes.
#include "rlx/array.h"

#include <fmt/core.h>

#include <cmath>
#include <cstdlib>
#include <cstring>

namespace rlx {
namespace {

constexpr std::size_t kAlignment = 64;

// calloc, so that the pages of a large array come zeroed from the system and cost nothing until they are touched.
std::shared_ptr<std::byte> allocate(std::size_t bytes, DType dtype, const Extents& shape) {
  void* base = std::calloc(1, bytes + kAlignment);
  if (!base)
    throw DeviceError(
        fmt::format("array {}{}: {} bytes of memory are not to be had", to_string(dtype), to_string(shape), bytes));
  auto address = (reinterpret_cast<std::uintptr_t>(base) + kAlignment - 1) / kAlignment * kAlignment;
  return {reinterpret_cast<std::byte*>(address), [base](std::byte*) { std::free(base); }};
}

// An int as a double, rounded to odd, so that the rounding to fewer bits that follows is the only one.
template <class From>
double to_double_odd(From v) {
  double d = double(v);
  if constexpr (sizeof(From) < 8) {
    return d;
  } else {
    constexpr double kEnd = std::is_signed_v<From> ? 0x1p63 : 0x1p64;  // where a rounded value no longer fits
    bool above = d >= kEnd || From(d) > v;
    if (!above && From(d) == v) return d;
    bool away = v < 0 ? !above : above;
    return std::bit_cast<double>((std::bit_cast<std::uint64_t>(d) - away) | 1);
  }
}

template <class To, class From>
To float_to_int(From v) {
  using Limits = std::numeric_limits<To>;
  double d = double(v), end = std::ldexp(1.0, Limits::digits);
  if (d != d) return 0;
  if (d >= end) return Limits::max();
  if (d <= double(Limits::min())) return Limits::min();
  return To(d);
}

template <class T>
double widen(T v) {
  if constexpr (std::is_same_v<T, f16> || std::is_same_v<T, bf16>) {
    return double(float(v));
  } else {
    return double(v);
  }
}

template <class To, class From>
To convert(From v) {
  constexpr bool from_float = is_float(dtype_of<From>()), to_float = is_float(dtype_of<To>());
  if constexpr (std::is_same_v<To, From>) {
    return v;
  } else if constexpr (std::is_same_v<From, c64>) {
    if constexpr (std::is_same_v<To, bool>) return v.re != 0 || v.im != 0;
    throw UserError(fmt::format("cast: c64 to {} would drop the imaginary part", to_string(dtype_of<To>())));
  } else if constexpr (std::is_same_v<To, c64>) {
    return {convert<float>(v), 0};
  } else if constexpr (std::is_same_v<To, bool>) {
    return widen(v) != 0;
  } else if constexpr (from_float && !to_float) {
    return float_to_int<To>(widen(v));
  } else if constexpr (!from_float && (std::is_same_v<To, f16> || std::is_same_v<To, bf16>)) {
    return To(to_double_odd(v));
  } else if constexpr (std::is_same_v<From, f16> || std::is_same_v<From, bf16>) {
    return To(float(v));
  } else {
    return To(v);  // ints wrap, floats round to nearest even
  }
}

}  // namespace

Array::Array(DType dtype, Extents shape) : dtype_(dtype), shape_(std::move(shape)), size_(count(shape_)) {
  std::size_t bytes;
  if (__builtin_mul_overflow(std::size_t(size_), size_of(dtype), &bytes) ||
      bytes > std::size_t(PTRDIFF_MAX) - kAlignment)
    throw UserError(
        fmt::format("array {}{}: the size in bytes does not fit 63 bits", to_string(dtype), to_string(shape_)));
  bytes_ = allocate(bytes, dtype, shape_);
}

Array Array::borrow(void* bytes, DType dtype, Extents shape) { return share(nullptr, bytes, dtype, std::move(shape)); }

Array Array::share(std::shared_ptr<void> owner, void* bytes, DType dtype, Extents shape) {
  Array a;
  a.dtype_ = dtype;
  a.shape_ = std::move(shape);
  a.size_ = count(a.shape_);
  size_of(dtype);  // refuses `any`
  a.bytes_ = std::shared_ptr<std::byte>(std::move(owner), static_cast<std::byte*>(bytes));
  return a;
}

Array Array::scalar(double value, DType dtype) {
  Array a(dtype, {});
  visit_dtype(dtype, [&]<class T>(T) { a.values<T>()[0] = convert<T>(value); });
  return a;
}

void Array::wrong_type(DType wanted) const {
  throw UserError(fmt::format("array: got {}{}, asked for its elements as {}", to_string(dtype_), to_string(shape_),
                              to_string(wanted)));
}

template <class To>
std::vector<To> Array::to_vector() const {
  std::vector<To> out(static_cast<std::size_t>(size_));
  if (dtype_ == DType::Any) return out;
  visit_dtype(dtype_, [&]<class T>(T) {
    auto in = values<T>();
    for (std::size_t i = 0; i < in.size(); ++i) out[i] = convert<To>(in[i]);
  });
  return out;
}
#define RLX_TO_VECTOR(text, id, type) template std::vector<type> Array::to_vector<type>() const;
RLX_DTYPES(RLX_TO_VECTOR)
#undef RLX_TO_VECTOR

double Array::at(std::int64_t i) const {
  if (i < 0 || i >= size_) throw UserError(fmt::format("array: element {} of {} in {}", i, size_, to_string(shape_)));
  return visit_dtype(dtype_, [&]<class T>(T) -> double {
    if constexpr (std::is_same_v<T, c64>) {
      throw UserError("array: an element of c64 is no real number");
    } else {
      return widen(values<T>()[std::size_t(i)]);
    }
  });
}

Array Array::clone() const {
  if (dtype_ == DType::Any) return {};
  Array out(dtype_, shape_);
  if (byte_size()) std::memcpy(out.bytes(), bytes(), byte_size());
  return out;
}

Array Array::reshaped(Extents shape) const {
  if (count(shape) != size_)
    throw UserError(fmt::format("reshape: got {} of {} elements, expected as many in {}", to_string(shape_), size_,
                                to_string(shape)));
  Array out = *this;
  out.shape_ = std::move(shape);
  return out;
}

Array Array::cast(DType to) const {
  if (to == dtype_) return *this;
  Array out(to, shape_);
  visit_dtype(dtype_, [&]<class From>(From) {
    visit_dtype(to, [&]<class To>(To) {
      auto in = values<From>();
      auto result = out.values<To>();
      for (std::size_t i = 0; i < in.size(); ++i) result[i] = convert<To>(in[i]);
    });
  });
  return out;
}

bool identical(const Array& a, const Array& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         (a.byte_size() == 0 || std::memcmp(a.bytes(), b.bytes(), a.byte_size()) == 0);
}

}  // namespace rlx
