// The functions of the op table's formulas for f32, as straight code that the compiler turns into vector loops.
// Included in files compiled for different instruction sets: all has internal linkage, calls nothing and gives the same
// bits on each set (compile with -ffp-contract=off). The hot ones (exp, log, tanh, erf) stay in f32; the others go
// through f64, where simple formulas are exact to far below an f32 ulp and no f32 is subnormal.
#pragma once
#include <cstdint>

#define RLX_VEC [[gnu::always_inline]] static inline

namespace rlx::vec {

using u32 = std::uint32_t;
using i32 = std::int32_t;
using u64 = std::uint64_t;

RLX_VEC u32 bits(float x) { return __builtin_bit_cast(u32, x); }
RLX_VEC u64 bits(double x) { return __builtin_bit_cast(u64, x); }
RLX_VEC float as_f32(u32 u) { return __builtin_bit_cast(float, u); }
RLX_VEC double as_f64(u64 u) { return __builtin_bit_cast(double, u); }
constexpr u32 kSign = 0x80000000u, kNan = 0x7fc00000u;
RLX_VEC u32 mask(bool b) { return b ? ~0u : 0u; }
RLX_VEC u32 choose(u32 mask, u32 a, u32 b) { return (a & mask) | (b & ~mask); }

// ---- exact
RLX_VEC float abs(float x) { return as_f32(bits(x) & ~kSign); }
RLX_VEC double abs(double x) { return as_f64(bits(x) & ~(u64(1) << 63)); }
RLX_VEC float copysign(float x, float s) { return as_f32((bits(x) & ~kSign) | (bits(s) & kSign)); }
RLX_VEC double copysign(double x, double s) { return as_f64((bits(x) & ~(u64(1) << 63)) | (bits(s) & (u64(1) << 63))); }
RLX_VEC float sign(float x) { return x > 0 ? 1.0f : x < 0 ? -1.0f : x; }
RLX_VEC float round(float x) { return __builtin_rintf(x); }
RLX_VEC float floor(float x) { return __builtin_floorf(x); }
RLX_VEC float ceil(float x) { return __builtin_ceilf(x); }
RLX_VEC float trunc(float x) { return __builtin_truncf(x); }
RLX_VEC float isnan(float x) { return x != x ? 1.0f : 0.0f; }
RLX_VEC float isinf(float x) { return abs(x) == __builtin_inff() ? 1.0f : 0.0f; }
RLX_VEC float isfinite(float x) { return abs(x) < __builtin_inff() ? 1.0f : 0.0f; }
RLX_VEC float sqrt(float x) { return __builtin_sqrtf(x); }
RLX_VEC float div(float a, float b) { return a / b; }
RLX_VEC float floor_div(float a, float b) { return float(__builtin_floor(double(a) / double(b))); }
RLX_VEC float maximum(float a, float b) {
  float larger = (a > b) | (a != a) ? a : b;
  return a == b ? as_f32(bits(a) & bits(b)) : larger;  // +0 of the zeros
}
RLX_VEC float minimum(float a, float b) {
  float smaller = (a < b) | (a != a) ? a : b;
  return a == b ? as_f32(bits(a) | bits(b)) : smaller;
}

// Adding these leaves a number rounded to a whole one in the low bits.
constexpr float kMagic = 0x1.8p23f;
constexpr double kMagic64 = 0x1.8p52;

// ---- hot: f32 only
RLX_VEC float exp(float x) {
  float c = x < -104.0f ? -104.0f : x;
  c = c > 89.0f ? 89.0f : c;
  float t = c * 0x1.715476p+0f + kMagic, n = t - kMagic;
  float hi = c - n * 0x1.62e4p-1f, lo = n * 0x1.7f7d1cp-20f;  // n * 0x1.62e4p-1 is exact
  float r = hi - lo, r_low = (hi - r) - lo;
  float q = 0x1.6b6e18p-10f;
  q = q * r + 0x1.122fc2p-7f;
  q = q * r + 0x1.555688p-5f;
  q = q * r + 0x1.5554a4p-3f;
  q = q * r + 0.5f;
  float y = 1 + (r + (r * r * q + r_low));
  i32 k = i32(bits(t)) - i32(0x4b400000), half = k >> 1;  // 2^k in two steps: once it is rounded, to a subnormal
  return y * as_f32(u32(half + 127) << 23) * as_f32(u32(k - half + 127) << 23);
}

RLX_VEC float log(float x) {
  float normal = x < 0x1p-126f ? x * 0x1p23f : x;
  float shift = x < 0x1p-126f ? 127.0f + 23.0f : 127.0f;
  u32 t = bits(normal) + (0x3f800000u - 0x3f3504f3u);  // x = 2^e * m, m from sqrt(1/2) to sqrt(2)
  float e = float(i32(t >> 23)) - shift, f = as_f32((t & 0x007fffffu) + 0x3f3504f3u) - 1;
  float p = 0x1.1d8ea6p-4f;
  p = p * f - 0x1.d635bcp-4f;
  p = p * f + 0x1.dea282p-4f;
  p = p * f - 0x1.fcf4c6p-4f;
  p = p * f + 0x1.23d21ap-3f;
  p = p * f - 0x1.555b4ap-3f;
  p = p * f + 0x1.999d5ap-3f;
  p = p * f - 0x1.fffffcp-3f;
  p = p * f + 0x1.555554p-2f;
  float f2 = f * f;
  float y = f * f2 * p + e * -0x1.bd0106p-13f;
  y = (f + (y - 0.5f * f2)) + e * 0x1.63p-1f;
  y = x == __builtin_inff() ? x : y;
  y = x == 0 ? -__builtin_inff() : y;
  return x >= 0 ? y : __builtin_nanf("");
}

RLX_VEC float tanh(float x) {
  float a = abs(x), u = x * x;
  float p = -0x1.8f8de4p-8f;
  p = p * u + 0x1.58048ep-6f;
  p = p * u - 0x1.b9258ap-5f;
  p = p * u + 0x1.110e1cp-3f;
  p = p * u - 0x1.555552p-2f;
  float near = a + a * u * p, far = 1 - 2 / (exp(2 * a) + 1);
  return copysign(a < 0.625f ? near : far, x);
}

RLX_VEC float erf(float x) {
  float a = abs(x), u = x * x;
  float p = 0x1.4a56900000000p-14f;
  p = p * u - 0x1.a45088p-11f;
  p = p * u + 0x1.541272p-8f;
  p = p * u - 0x1.b7faba0p-6f;
  p = p * u + 0x1.ce2d10p-4f;
  p = p * u - 0x1.81273ep-2f;
  float near = x + x * (p * u + 0x1.06eba8p-3f);  // the first coefficient is 2 / sqrt(pi) - 1
  float c = a > 4 ? 4.0f : a;
  float q = 0x1.b77830p-20f;  // erfc is e^q
  q = q * c - 0x1.825ce4p-15f;
  q = q * c + 0x1.38e5e6p-11f;
  q = q * c - 0x1.37ecc6p-8f;
  q = q * c + 0x1.b0e246p-6f;
  q = q * c - 0x1.c2e356p-4f;
  q = q * c - 0x1.437eb4p-1f;
  q = q * c - 0x1.2156fap+0f;
  q = q * c + 0x1.4fb068p-12f;
  float far = copysign(1 - exp(q), x);
  return a < 1 ? near : far;
}

// ---- building blocks in f64
// 2^n * e^r.
RLX_VEC double exp_of(double n_magic, double r) {
  double p = 1.0 / 39916800;
  p = p * r + 1.0 / 3628800;
  p = p * r + 1.0 / 362880;
  p = p * r + 1.0 / 40320;
  p = p * r + 1.0 / 5040;
  p = p * r + 1.0 / 720;
  p = p * r + 1.0 / 120;
  p = p * r + 1.0 / 24;
  p = p * r + 1.0 / 6;
  p = p * r + 0.5;
  return (1 + (r + r * r * p)) * as_f64((bits(n_magic) + 1023) << 52);
}
RLX_VEC double clamp(double x, double bound) {
  double c = x < -bound ? -bound : x;
  return c > bound ? bound : c;
}
RLX_VEC double exp64(double x) {  // beyond ±200 as there, which is 0 or infinity in f32
  double c = clamp(x, 200), t = c * 0x1.71547652b82fep+0 + kMagic64, n = t - kMagic64;
  return exp_of(t, (c - n * 0x1.62e42feep-1) - n * 0x1.a39ef35793c76p-33);
}
RLX_VEC double log_of(double x) {  // x positive, normal and finite
  constexpr u64 kRootHalf = 0x3fe6a09e667f3bcdu;
  u64 t = bits(x) - kRootHalf + (u64(1023) << 52);
  double e = as_f64((t >> 52) | bits(0x1p52)) - (0x1p52 + 1023);
  double f = as_f64((t & 0x000fffffffffffffu) + kRootHalf) - 1;
  double s = f / (2 + f), u = s * s;
  double p = 1.0 / 19;
  p = p * u + 1.0 / 17;
  p = p * u + 1.0 / 15;
  p = p * u + 1.0 / 13;
  p = p * u + 1.0 / 11;
  p = p * u + 1.0 / 9;
  p = p * u + 1.0 / 7;
  p = p * u + 1.0 / 5;
  p = p * u + 1.0 / 3;
  return 2 * (s + s * u * p) + e * 0x1.62e42fefa39efp-1;
}
RLX_VEC double log64(double x) {  // no subnormals
  double y = log_of(x);
  y = x == __builtin_inf() ? x : y;
  y = x == 0 ? -__builtin_inf() : y;
  return x >= 0 ? y : __builtin_nan("");
}
// The angle from 0 to pi / 2 of the point (x, y), both at least 0.
RLX_VEC double angle(double y, double x) {
  // What is beyond every f32 counts as equal, so that neither 0 / 0 nor infinity - infinity arises.
  double low = y > x ? x : y, high = y > x ? y : x;
  low = low > 1e300 ? 1e300 : low;
  high = high > 1e300 ? 1e300 : high < 1e-300 ? 1e-300 : high;
  bool wide = low > 0.4142 * high;  // then pi / 4 is taken off first
  double num = wide ? low - high : low, den = wide ? low + high : high;
  double base = wide ? 0x1.921fb54442d18p-1 : 0.0;
  double z = num / den, u = z * z;
  double p = -0x1.9bedf83a35ceep-6;
  p = p * u + 0x1.9a9476d8be932p-5;
  p = p * u - 0x1.0a533c9023239p-4;
  p = p * u + 0x1.3a482414261bfp-4;
  p = p * u - 0x1.744dfdc495f0fp-4;
  p = p * u + 0x1.c71bc191001ffp-4;
  p = p * u - 0x1.249246d26471bp-3;
  p = p * u + 0x1.999999919dba1p-3;
  p = p * u - 0x1.555555554ffd0p-2;
  double r = base + (z + z * u * p);
  return y > x ? 0x1.921fb54442d18p+0 - r : r;
}

// 2^(8g) * 2 / pi modulo 4 in four parts of 24 bits, whose products with an f32 are exact in f64.
constexpr float kFirst[14] = {0x1.45f3p-1f,   0x1.7cc1b6p+1f, 0x1.836e4cp+0f, 0x1.b72722p+1f, 0x1.27220ap+1f,
                              0x1.220a94p+1f, 0x1.529fcp-4f,  0x1.29fc24p+0f, 0x1.fc2754p+0f, 0x1.3abe8p-3f,
                              0x1.abe8fap+1f, 0x1.e8fa9ap+1f, 0x1.f534dcp+0f, 0x1.34ddcp+0f};
constexpr float kSecond[14] = {0x1.b72722p-23f, 0x1.27220ap-23f, 0x1.220a94p-23f, 0x1.529fcp-28f,  0x1.29fc24p-24f,
                               0x1.fc2754p-24f, 0x1.3abe8p-27f,  0x1.abe8fap-23f, 0x1.e8fa9ap-23f, 0x1.f534dcp-24f,
                               0x1.34ddcp-24f,  0x1.bb81bp-25f,  0x1.c0db6p-24f,  0x1.b6c528p-25f};
constexpr float kThird[14] = {0x1.529fcp-52f,  0x1.29fc24p-48f, 0x1.fc2754p-48f, 0x1.3abe8p-51f, 0x1.abe8fap-47f,
                              0x1.e8fa9ap-47f, 0x1.f534dcp-48f, 0x1.34ddcp-48f,  0x1.bb81bp-49f, 0x1.c0db6p-48f,
                              0x1.b6c528p-49f, 0x1.b14accp-47f, 0x1.4acc9ep-47f, 0x1.993c4p-48f};
constexpr float kFourth[14] = {0x1.3abe8p-75f, 0x1.abe8fap-71f, 0x1.e8fa9ap-71f, 0x1.f534dcp-72f, 0x1.34ddcp-72f,
                               0x1.bb81bp-73f, 0x1.c0db6p-72f,  0x1.b6c528p-73f, 0x1.b14accp-71f, 0x1.4acc9ep-71f,
                               0x1.993c4p-72f, 0x1.3c439p-72f,  0x1.0e41p-74f,   0x1.c820fep-71f};
struct SinCos {
  double sin, cos;
};
// The sine and cosine of every finite x. x = 2^(8g) * y where y is whole if g > 0; what is
// left of each product after its nearest whole number is exact, the sum of the first two as well.
RLX_VEC SinCos sin_cos(float x) {
  i32 e = i32((bits(x) >> 23) & 255) - 150;
  i32 g = (e & ~(e >> 31)) >> 3;  // a choice would become branches around the loads
  double y = as_f32(bits(x) - (u32(g) << 26));
  double a = y * kFirst[g], b = y * kSecond[g], c = y * kThird[g], d = y * kFourth[g];
  double a_magic = a + kMagic64, b_magic = b + kMagic64;
  double s = (a - (a_magic - kMagic64)) + (b - (b_magic - kMagic64));
  double s_magic = s + kMagic64;
  double r = (((s - (s_magic - kMagic64)) + c) + d) * 0x1.921fb54442d18p+0, u = r * r;
  u64 quarter = bits(a_magic) + bits(b_magic) + bits(s_magic);
  double p = -1.0 / 39916800, q = 1.0 / 479001600;
  p = p * u + 1.0 / 362880;
  p = p * u - 1.0 / 5040;
  p = p * u + 1.0 / 120;
  p = p * u - 1.0 / 6;
  q = q * u - 1.0 / 3628800;
  q = q * u + 1.0 / 40320;
  q = q * u - 1.0 / 720;
  q = q * u + 1.0 / 24;
  double sine = r * (1 + u * p), cosine = 1 - (0.5 * u - u * u * q);
  u64 odd = u64(0) - (quarter & 1), sine_sign = (quarter & 2) << 62, cosine_sign = ((quarter + 1) & 2) << 62;
  u64 swap = (bits(sine) ^ bits(cosine)) & odd;
  return {as_f64((bits(sine) ^ swap) ^ sine_sign), as_f64((bits(cosine) ^ swap) ^ cosine_sign)};
}

// ---- through f64
RLX_VEC float exp2(float x) {
  double c = clamp(x, 300), t = c + kMagic64;
  return float(exp_of(t, (c - (t - kMagic64)) * 0x1.62e42fefa39efp-1));
}
RLX_VEC float expm1(float x) {
  double d = x, near = d + d * d * (0.5 + d * (1.0 / 6));
  near = x == 0 ? d : near;
  return float(abs(x) < 0x1p-12f ? near : exp64(d) - 1);
}
RLX_VEC float log2(float x) { return float(log64(double(x)) * 0x1.71547652b82fep+0); }
RLX_VEC float log1p(float x) {
  double d = x, near = d - d * d * (0.5 - d * (1.0 / 3));
  near = x == 0 ? d : near;
  return float(abs(x) < 0x1p-12f ? near : log64(1 + d));
}
// A factor: 1, or NaN for infinities and NaN.
RLX_VEC float finite(float x) { return abs(x) < __builtin_inff() ? 1.0f : __builtin_nanf(""); }
RLX_VEC float sin(float x) { return float(sin_cos(x).sin) * finite(x); }
RLX_VEC float cos(float x) { return float(sin_cos(x).cos) * finite(x); }
RLX_VEC float tan(float x) {
  SinCos y = sin_cos(x);
  return float(y.sin / y.cos) * finite(x);
}
RLX_VEC float asin(float x) {
  double a = abs(x), y = angle(a, __builtin_sqrt((1 - a) * (1 + a)));
  return a <= 1 ? copysign(float(y), x) : __builtin_nanf("");
}
RLX_VEC float acos(float x) {
  double a = abs(x), y = angle(__builtin_sqrt((1 - a) * (1 + a)), a);
  y = x < 0 ? 0x1.921fb54442d18p+1 - y : y;
  return a <= 1 ? float(y) : __builtin_nanf("");
}
RLX_VEC float atan(float x) { return x != x ? x : copysign(float(angle(abs(double(x)), 1)), x); }
RLX_VEC float atan2(float y, float x) {
  double r = angle(abs(double(y)), abs(double(x)));
  r = bits(x) >> 31 ? 0x1.921fb54442d18p+1 - r : r;
  return (x != x) | (y != y) ? x + y : copysign(float(r), y);
}
RLX_VEC float sinh(float x) {
  double d = x, u = d * d, e = exp64(d);
  double near = d + d * u * (1.0 / 6 + u * (1.0 / 120 + u * (1.0 / 5040)));
  return float(abs(x) < 0.0625f ? near : 0.5 * (e - 1 / e));
}
RLX_VEC float cosh(float x) {
  double e = exp64(double(x));
  return float(0.5 * (e + 1 / e));
}
RLX_VEC float asinh(float x) {
  double a = abs(double(x)), u = a * a;
  double near = a - a * u * (1.0 / 6 - u * (3.0 / 40 - u * (15.0 / 336)));
  double far = log64(a + __builtin_sqrt(u + 1));
  return x != x ? x : copysign(float(a < 0.0625 ? near : far), x);
}
RLX_VEC float acosh(float x) {
  double d = x;
  return x >= 1 ? float(log64(d + __builtin_sqrt(d * d - 1))) : __builtin_nanf("");
}
RLX_VEC float atanh(float x) {
  double a = abs(double(x)), u = a * a;
  double near = a + a * u * (1.0 / 3 + u * (1.0 / 5 + u * (1.0 / 7)));
  double far = 0.5 * log64((1 + a) / (1 - a));
  return a <= 1 ? copysign(float(a < 0.0625 ? near : far), x) : __builtin_nanf("");
}

RLX_VEC float pow(float a, float b) {
  float m = abs(a), n = abs(b), inf = __builtin_inff();
  double y = exp64(double(b) * log_of(double(m)));  // any number where m is 0 or infinite
  // Whether b is whole, and odd: beyond 2^24 all are even. Masks, as nested choices would become branches.
  u32 whole = mask(__builtin_truncf(b) == b);
  u32 odd = whole & mask(n < 0x1p24f) & mask(__builtin_truncf(0.5f * b) != 0.5f * b);
  u32 grows = ~(mask(m > 1) ^ mask(b > 0)), ends = mask(m == 0) | mask(m == inf) | mask(n == inf);
  u32 r = bits(float(y));
  r = choose(ends, grows & bits(inf), r) | (odd & bits(a) & kSign);
  r = choose(mask(a < 0) & ~whole & mask(m != inf), kNan, r);
  r = choose(mask(a != a) | mask(b != b), kNan, r);
  return as_f32(choose(mask(a == 1) | mask(b == 0) | (mask(m == 1) & mask(n == inf)), bits(1.0f), r));
}

// Exact: one step of long division where the quotient has at most 29 bits, else 40 bits a step.
RLX_VEC float fmod(float a, float b) {
  double x = abs(double(a)), y = abs(double(b)), q = __builtin_trunc(x / y);
  double r = x - q * y;
  if (!(q < 0x1p29) & (abs(a) < __builtin_inff()) & (y > 0)) {
    u32 ea = bits(x) >> 52, eb = bits(y) >> 52;
    u64 ma = (bits(x) & 0x000fffffffffffffu) | (u64(1) << 52), mb = (bits(y) & 0x000fffffffffffffu) | (u64(1) << 52);
    ma >>= 29, mb >>= 29;  // 24 bits hold an f32
    u32 left = ea - eb;
    for (ma %= mb; left;) {
      u32 step = left < 40 ? left : 40;
      ma = (ma << step) % mb;
      left -= step;
    }
    r = double(ma) * as_f64(u64(eb - 23) << 52);
  }
  r = y == __builtin_inf() ? x : r;
  bool defined = (abs(a) < __builtin_inff()) & (y > 0);  // false for NaN
  return defined ? copysign(float(r), a) : __builtin_nanf("");
}
RLX_VEC float mod(float a, float b) {
  float r = fmod(a, b);
  float moved = (r < 0) != (b < 0) ? float(double(r) + double(b)) : r;
  return r == 0 ? copysign(0.0f, b) : moved;
}

}  // namespace rlx::vec
#undef RLX_VEC
