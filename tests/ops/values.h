// What the value tests of the ops share: small arrays, and a comparison that shows both sides.
#pragma once
#include <gtest/gtest.h>

#include "ops/eval.h"
#include "rlx/ops.h"
#include "rlx/transform.h"

namespace rlx {

inline Array floats(const std::vector<float>& v, Extents shape) { return Array(v, std::move(shape)); }
inline Array doubles(const std::vector<double>& v, Extents shape) { return Array(v, std::move(shape)); }
inline Array ints(const std::vector<std::int32_t>& v, Extents shape) { return Array(v, std::move(shape)); }
inline Array longs(const std::vector<std::int64_t>& v, Extents shape) { return Array(v, std::move(shape)); }

/// Shape and every value, NaN like NaN.
inline void expect_values(const Array& got, const Extents& shape, const std::vector<double>& values,
                          double tolerance = 0) {
  ASSERT_EQ(got.shape(), shape);
  ASSERT_EQ(got.size(), std::int64_t(values.size()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    double v = got.at(std::int64_t(i));
    if (values[i] != values[i])
      EXPECT_NE(v, v) << "element " << i;
    else if (tolerance == 0)
      EXPECT_EQ(v, values[i]) << "element " << i;
    else
      EXPECT_NEAR(v, values[i], tolerance) << "element " << i;
  }
}
#define EXPECT_VALUES(got, shape, ...)        \
  do {                                        \
    SCOPED_TRACE(#got);                       \
    expect_values(got, shape, {__VA_ARGS__}); \
  } while (false)

/// That f throws an E whose text holds `part`.
template <class E = UserError, class F>
void expect_error(F&& f, const std::string& part) {
  try {
    f();
    ADD_FAILURE() << "no error; expected: " << part;
  } catch (const E& e) {
    EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << "got: " << e.what() << "\nexpected: " << part;
  }
}
#define EXPECT_ERROR(expression, part) expect_error([&] { (void)(expression); }, part)

/// The gradient of sum(y · weights) at the feeds; weights of 1 where not given.
inline Array gradient(Node y, Node x, const Feeds& feeds, const std::optional<Array>& weights = {}) {
  return evaluate(weights ? grad(y, {x}, y.graph().constant(*weights))[0] : grad(y, {x})[0], feeds);
}

}  // namespace rlx
