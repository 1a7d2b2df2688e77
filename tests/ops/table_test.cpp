// The op table: what is written from it is current, its rows are whole, and a user's row is one like ours.
#include "ops/table.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <set>
#include <sstream>

#include "ops/values.h"

using namespace rlx;

static std::string read(const std::string& path) {
  std::ifstream file(std::string(RLX_TESTS_DIR) + "/../" + path);
  std::ostringstream out;
  out << file.rdbuf();
  return out.str();
}

TEST(Table, HeaderAndDocsAreCurrent) {
  EXPECT_TRUE(read("include/rlx/ops.h") == ops_header()) << "run: rlx_table --header > include/rlx/ops.h";
  EXPECT_TRUE(read("docs/ops.md") == ops_markdown()) << "run: rlx_table --docs > docs/ops.md";
}

TEST(Table, RowsAreWhole) {
  std::set<std::string_view> names;
  for (const OpDef* op : builtin_ops()) {
    EXPECT_EQ(missing_column(*op), nullptr) << op->name;
    EXPECT_TRUE(names.insert(op->name).second) << op->name << " stands twice";
    EXPECT_EQ(find_op(op->name), op);
    EXPECT_TRUE(op->doc.ends_with(".")) << op->name << ": a doc is a sentence";
    EXPECT_EQ(op->attrs->parse(op->attrs->parse("").text()).text(), op->attrs->parse("").text()) << op->name;
  }
  EXPECT_EQ(find_op("no such op"), nullptr);
}

namespace {

// x³, whose gradient and formula a user gives.
constexpr OpDef cube() {
  OpDef op;
  op.name = "test_cube";
  op.kind = Kind::Elementwise;
  op.min_inputs = op.max_inputs = 1;
  op.signature = "(Node x)";
  op.doc = "x cubed.";
  op.dtypes = DTypes::Float;
  op.formula.f64 = [](const double* x) { return x[0] * x[0] * x[0]; };
  op.grad = [](const GradArgs& g) -> Nodes { return {3 * square(g.x) * g.dy}; };
  return op;
}

}  // namespace

TEST(Table, AUsersOpIsARowLikeOurs) {
  const OpDef& op = register_op(cube());
  Graph g;
  Node x = g.input("x", DType::F32, {2});
  Node y = make(op, {x}, Attrs());
  Feeds feeds{{"x", floats({2, -3}, {2})}};
  EXPECT_VALUES(evaluate(y, feeds), (Extents{2}), 8, -27);
  EXPECT_VALUES(gradient(y, x, feeds), (Extents{2}), 12, 27);
  g.set_outputs({y});
  EXPECT_EQ(Graph::parse(g.text()).text(), g.text());
  EXPECT_ERROR(register_op(cube()), "[test_cube] is already an op");
  OpDef taken = cube();
  taken.name = "matmul";
  EXPECT_ERROR(register_op(taken), "[matmul] is already an op");
  EXPECT_ERROR(make(op, {g.input("i", DType::I32, {2})}, Attrs()), "[test_cube] needs a float, got i32");
}

TEST(Table, AMissingColumnIsNamed) {
  auto without = [](auto remove) {
    OpDef op = cube();
    op.name = "test_incomplete";
    remove(op);
    return op;
  };
  EXPECT_ERROR(register_op(without([](OpDef& op) { op.grad = {}; })),
               "[test_incomplete] cannot be registered: its row lacks .grad");
  EXPECT_ERROR(register_op(without([](OpDef& op) { op.formula = {}; })), "lacks .formula");
  EXPECT_ERROR(register_op(without([](OpDef& op) { op.doc = ""; })), "lacks .name or doc");
  EXPECT_ERROR(register_op(without([](OpDef& op) { op.max_inputs = 0; })), "lacks .inputs");
  EXPECT_ERROR(register_op(without([](OpDef& op) { op.kind = Kind::Composite; })), "lacks .body");
  EXPECT_ERROR(register_op(without([](OpDef& op) { op.kind = Kind::Index; })), "lacks .infer");
  EXPECT_ERROR(register_op(without([](OpDef& op) { op.kind = Kind::Movement; })), "lacks .infer");
  EXPECT_ERROR(register_op(without([](OpDef& op) { op.kind = Kind::Reduce, op.formula = {}; })),
               "lacks .formula or eval");
}
