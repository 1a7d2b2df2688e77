// What GGUF's reader and writer share.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

namespace rlx {

inline constexpr std::size_t kGgufMaxName = 63;  // llama.cpp's limit
inline constexpr std::size_t kGgufMaxRank = 4;
inline constexpr std::uint32_t kGgufArray = 9;

// The scalar value types: number in the file, C++ type.
#define RLX_GGUF_KINDS(X)                                                                                     \
  X(0, std::uint8_t)                                                                                          \
  X(1, std::int8_t) X(2, std::uint16_t) X(3, std::int16_t) X(4, std::uint32_t) X(5, std::int32_t) X(6, float) \
      X(7, bool) X(8, std::string) X(10, std::uint64_t) X(11, std::int64_t) X(12, double)

/// Calls f with a value of the C++ type of a kind; false where there is no such kind.
template <class F>
bool visit_gguf_kind(std::uint32_t kind, F&& f) {
  switch (kind) {
#define RLX_CASE(number, type) \
  case number:                 \
    f(type{});                 \
    return true;
    RLX_GGUF_KINDS(RLX_CASE)
#undef RLX_CASE
    default:
      return false;
  }
}
template <class T>
constexpr std::uint32_t gguf_kind_of() {
#define RLX_CASE(number, type) \
  if constexpr (std::is_same_v<T, type>) return number;
  RLX_GGUF_KINDS(RLX_CASE)
#undef RLX_CASE
  return kGgufArray;
}

}  // namespace rlx
