// Dtypes: sizes, names and the promotion table.
#include <fmt/core.h>

#include "rlx/base.h"

namespace rlx {
namespace {

constexpr std::size_t kCount = kAllDTypes.size();
using Row = std::array<DType, kCount>;

// Row and column in the order of kAllDTypes; Any stands where there is no common dtype. docs/dtypes.md prints it.
constexpr std::array<Row, kCount> promotion_table() {
  using enum DType;
  return {{
      // Bool U8    U16   U32   U64   I8    I16   I32   I64   F16   BF16  F32  F64  C64
      {{Bool, U8, U16, U32, U64, I8, I16, I32, I64, F16, BF16, F32, F64, C64}},         // Bool
      {{U8, U8, U16, U32, U64, I16, I16, I32, I64, F16, BF16, F32, F64, C64}},          // U8
      {{U16, U16, U16, U32, U64, I32, I32, I32, I64, F16, BF16, F32, F64, C64}},        // U16
      {{U32, U32, U32, U32, U64, I64, I64, I64, I64, F16, BF16, F32, F64, C64}},        // U32
      {{U64, U64, U64, U64, U64, F32, F32, F32, F32, F16, BF16, F32, F64, C64}},        // U64
      {{I8, I16, I32, I64, F32, I8, I16, I32, I64, F16, BF16, F32, F64, C64}},          // I8
      {{I16, I16, I32, I64, F32, I16, I16, I32, I64, F16, BF16, F32, F64, C64}},        // I16
      {{I32, I32, I32, I64, F32, I32, I32, I32, I64, F16, BF16, F32, F64, C64}},        // I32
      {{I64, I64, I64, I64, F32, I64, I64, I64, I64, F16, BF16, F32, F64, C64}},        // I64
      {{F16, F16, F16, F16, F16, F16, F16, F16, F16, F16, F32, F32, F64, C64}},         // F16
      {{BF16, BF16, BF16, BF16, BF16, BF16, BF16, BF16, BF16, F32, BF16, F32, F64, C64}},  // BF16
      {{F32, F32, F32, F32, F32, F32, F32, F32, F32, F32, F32, F32, F64, C64}},         // F32
      {{F64, F64, F64, F64, F64, F64, F64, F64, F64, F64, F64, F64, F64, Any}},         // F64
      {{C64, C64, C64, C64, C64, C64, C64, C64, C64, C64, C64, C64, Any, C64}},         // C64
  }};
}
constexpr auto kPromotion = promotion_table();

constexpr bool is_symmetric() {
  for (std::size_t i = 0; i < kCount; ++i)
    for (std::size_t j = 0; j < kCount; ++j)
      if (kPromotion[i][j] != kPromotion[j][i]) return false;
  return true;
}
static_assert(is_symmetric());

}  // namespace

std::size_t size_of(DType dtype) {
  return visit_dtype(dtype, []<class T>(T) { return sizeof(T); });
}

std::string_view to_string(DType dtype) {
  switch (dtype) {
#define RLX_NAME(text, id, type) \
  case DType::id: return text;
    RLX_DTYPES(RLX_NAME)
#undef RLX_NAME
    case DType::Any: break;
  }
  return "any";
}

DType dtype_from_string(std::string_view text) {
  std::string known;
  for (auto d : kAllDTypes) {
    if (to_string(d) == text) return d;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", to_string(d));
  }
  throw UserError(fmt::format("dtype: got '{}', expected one of {}", text, known));
}

DType promote(DType a, DType b) {
  if (a == DType::Any || b == DType::Any) return DType::Any;
  auto common = kPromotion[std::size_t(a) - 1][std::size_t(b) - 1];
  if (common == DType::Any)
    throw UserError(fmt::format("{} and {} have no common dtype: cast one of them", to_string(a), to_string(b)));
  return common;
}

}  // namespace rlx
