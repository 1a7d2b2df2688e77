// What a formula may say of numbers: the functions that ops.def calls, for double, int64 and uint64.
#pragma once
#include <cmath>
#include <limits>

#include "rlx/op_def.h"

namespace rlx {
namespace scalar {

using std::acos, std::acosh, std::asin, std::asinh, std::atan, std::atan2, std::atanh, std::cos, std::cosh, std::erf, std::exp,
    std::exp2, std::expm1, std::isfinite, std::isinf, std::isnan, std::log, std::log1p, std::log2, std::sin, std::sinh, std::sqrt,
    std::tan, std::tanh;
template <class T> constexpr bool kInt = std::integral<T>;
using I = std::int64_t;
using U = std::uint64_t;

template <class T> T abs(T x) {
  if constexpr (std::same_as<T, double>) return std::fabs(x);
  else if constexpr (std::same_as<T, I>) return x < 0 ? I(-U(x)) : x;
  else return x;
}
template <class T> T sign(T x) { return x > 0 ? T(1) : x < 0 ? T(-1) : x; }  // keeps NaN and -0
template <class T> T round(T x) {
  if constexpr (kInt<T>) return x;
  else return std::nearbyint(x);  // the default mode is to nearest even
}
template <class T> T floor(T x) {
  if constexpr (kInt<T>) return x;
  else return std::floor(x);
}
template <class T> T ceil(T x) {
  if constexpr (kInt<T>) return x;
  else return std::ceil(x);
}
template <class T> T trunc(T x) {
  if constexpr (kInt<T>) return x;
  else return std::trunc(x);
}
template <class T> T div(T a, T b) {
  if constexpr (std::same_as<T, double>) return a / b;
  else if (b == 0) return 0;
  else if constexpr (std::same_as<T, I>) return b == -1 ? I(-U(a)) : a / b;
  else return a / b;
}
template <class T> T floor_div(T a, T b) {
  if constexpr (std::same_as<T, double>) return std::floor(a / b);
  else if constexpr (std::same_as<T, U>) return div(a, b);
  else {
    T q = div(a, b);
    return b != 0 && b != -1 && a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
  }
}
template <class T> T fmod(T a, T b) {
  if constexpr (std::same_as<T, double>) return std::fmod(a, b);
  else if (b == 0) return 0;
  else if constexpr (std::same_as<T, I>) return b == -1 ? 0 : a % b;
  else return a % b;
}
template <class T> T mod(T a, T b) {
  T r = fmod(a, b);
  if constexpr (std::same_as<T, U>) return r;
  else {
    if (r != 0 && (r < 0) != (b < 0)) return r + b;
    if constexpr (std::same_as<T, double>) return r == 0 ? std::copysign(0.0, b) : r;
    else return r;
  }
}
template <class T> T pow(T a, T b) {
  if constexpr (std::same_as<T, double>) return std::pow(a, b);
  else {
    if (b < 0) return a == 1 ? 1 : a == T(-1) ? (b % 2 == 0 ? 1 : T(-1)) : 0;
    U base = U(a), out = 1;
    for (U e = U(b); e; e >>= 1, base *= base)
      if (e & 1) out *= base;
    return T(out);
  }
}
template <class T> T maximum(T a, T b) {
  if constexpr (std::same_as<T, double>)
    if (a == 0 && b == 0) return std::signbit(a) ? b : a;
  return a > b || a != a ? a : b;
}
template <class T> T minimum(T a, T b) {
  if constexpr (std::same_as<T, double>)
    if (a == 0 && b == 0) return std::signbit(a) ? a : b;
  return a < b || a != a ? a : b;
}
template <class T> T bitwise_not(T x) { return ~x; }
template <class T> T shift_left(T a, T b) { return U(b) > 63 ? T(0) : T(U(a) << U(b)); }
template <class T> T shift_right(T a, T b) { return U(b) > 63 ? T(a < T(0) ? -1 : 0) : a >> b; }
template <class T> T select(T c, T a, T b) { return c != 0 ? a : b; }

}  // namespace scalar

/// The formula column from one generic lambda, instantiated only where the op takes such values.
template <int arity, DTypes dtypes, class F> consteval Formula formula(F) {
  constexpr auto on = []<class T>() -> T (*)(const T*) {
    return [](const T* in) -> T {
      if constexpr (arity == 1) return T(F{}(in[0]));
      else if constexpr (arity == 2) return T(F{}(in[0], in[1]));
      else return T(F{}(in[0], in[1], in[2]));
    };
  };
  Formula out;
  if constexpr (dtypes != DTypes::Int && dtypes != DTypes::Logic) out.f64 = on.template operator()<double>();
  if constexpr (dtypes != DTypes::Float && dtypes != DTypes::Predicate) {
    out.i64 = on.template operator()<std::int64_t>();
    out.u64 = on.template operator()<std::uint64_t>();
  }
  return out;
}

}  // namespace rlx
