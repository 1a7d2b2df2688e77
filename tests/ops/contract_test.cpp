// matmul, dot_general and convolutions: values and gradients of PyTorch, edge cases, and one test a message.
#include "ops/golden/golden.h"
#include "ops/values.h"

using namespace rlx;

namespace {

Array arange(DType dtype, Extents shape, double start = 0) {
  Array out(DType::F64, std::move(shape));
  for (auto& v : out.values<double>()) v = start++;
  return out.cast(dtype);
}
Node leaf(Graph& graph, Feeds& feeds, const std::string& name, const Array& value) {
  feeds.emplace(name, value);
  return graph.input(name, value.type());
}

}  // namespace

TEST(Matmul, LikePyTorch) {
  for (auto* name : {"plain", "vector_vector", "vector_matrix", "matrix_vector", "vector_batch", "batch_vector",
                     "batch", "one_matrix", "batch_of_right", "broadcast", "inner_0", "rows_0"})
    check_golden(std::string("matmul_") + name, [](const Nodes& x) { return matmul(x[0], x[1]); });
}

TEST(Matmul, InnerSize0GivesZeros) {
  Graph graph;
  Feeds feeds;
  Node a = leaf(graph, feeds, "a", Array(DType::F32, {4, 0})), b = leaf(graph, feeds, "b", Array(DType::F32, {0, 4}));
  expect_values(evaluate(matmul(a, b), feeds), {4, 4}, std::vector<double>(16, 0));
  Node c = leaf(graph, feeds, "c", Array(DType::F32, {3, 2, 0})),
       d = leaf(graph, feeds, "d", Array(DType::F32, {3, 0, 3}));
  expect_values(evaluate(matmul(c, d), feeds), {3, 2, 3}, std::vector<double>(18, 0));
  EXPECT_EQ(gradient(matmul(a, b), a, feeds).shape(), (Extents{4, 0}));
}

TEST(Matmul, IntegersAreExact) {
  Graph graph;
  Feeds feeds;
  Node a = leaf(graph, feeds, "a", Array(std::vector<std::int8_t>{-128, 127, 127, 127}, {2, 2}));
  Node b = leaf(graph, feeds, "b", Array(std::vector<std::int8_t>{-128, 127, -128, 127}, {2, 2}));
  Array wide = evaluate(matmul(a, b, DType::I32), feeds);
  EXPECT_EQ(wide.dtype(), DType::I32);
  EXPECT_VALUES(wide, (Extents{2, 2}), 128, -127, -32512, 32258);
  Array narrow = evaluate(matmul(a, b), feeds);  // NumPy's int8 product wraps
  EXPECT_EQ(narrow.dtype(), DType::I8);
  EXPECT_VALUES(narrow, (Extents{2, 2}), -128, -127, 0, 2);
  EXPECT_VALUES(evaluate(matmul(a, b, DType::F32), feeds), (Extents{2, 2}), 128, -127, -32512, 32258);
  Node big = leaf(graph, feeds, "big", longs({(std::int64_t(1) << 53) + 1, 1}, {2}));
  EXPECT_EQ(evaluate(matmul(big, leaf(graph, feeds, "ones", longs({1, 1}, {2}))), feeds).values<std::int64_t>()[0],
            (std::int64_t(1) << 53) + 2);
  Node u = leaf(graph, feeds, "u", Array(std::vector<std::uint64_t>{~std::uint64_t(0)}, {1, 1}));
  EXPECT_EQ(evaluate(matmul(u, u, DType::F64), feeds).at(0), 1.0);  // (2^64 - 1)² mod 2^64
  Node mixed = matmul(leaf(graph, feeds, "m", Array(std::vector<std::uint8_t>{255, 255}, {2})), a, DType::I32);
  EXPECT_VALUES(evaluate(mixed, feeds), Extents{2}, -255, 64770);
}

TEST(Matmul, SumsAreWideAndRoundedOnce) {
  Graph graph;
  Feeds feeds;
  Node ones = leaf(graph, feeds, "ones", Array(std::vector<f16>(4096, f16(1.0f)), {4096}));
  Array sum = evaluate(matmul(ones, ones), feeds);
  EXPECT_EQ(sum.dtype(), DType::F16);
  EXPECT_EQ(sum.at(0), 4096);
  Node h = leaf(graph, feeds, "h", Array(std::vector<bf16>{bf16(1.0f), bf16(0.00390625f)}, {2}));
  EXPECT_EQ(evaluate(matmul(h, h, DType::F32), feeds).at(0), 1.0000152587890625);
  Node y = matmul(h, h, DType::F32);
  EXPECT_EQ(grad(y, {h})[0].dtype(), DType::BF16);
}

TEST(Matmul, SymbolicSizes) {
  Graph graph;
  Node x = graph.input("x", DType::F32, {Dim::symbol("batch"), Dim::symbol("seq"), 4}),
       w = graph.param("w", DType::F32, {4, 5});
  Node y = matmul(x, w);
  EXPECT_EQ(to_string(y.type()), "f32[batch,seq,5]");
  Node dw = grad(y, {w})[0];
  graph.verify();
  Feeds feeds{{"x", arange(DType::F32, {2, 3, 4})}, {"w", Array(DType::F32, {4, 5})}};
  Array got = evaluate(dw, feeds);
  EXPECT_EQ(got.at(0), 60);   // 0 + 4 + … + 20
  EXPECT_EQ(got.at(19), 78);  // 3 + 7 + … + 23
}

TEST(Matmul, Errors) {
  Graph graph;
  auto in = [&](DType d, Shape s) { return graph.input("x" + std::to_string(graph.size()), d, std::move(s)); };
  EXPECT_ERROR(matmul(in(DType::F32, {4, 3}), in(DType::F32, {5, 2})),
               "[matmul] inner sizes differ: got [4,3] and [5,2], expected 3 = 5");
  EXPECT_ERROR(matmul(in(DType::F32, {3}), in(DType::F32, {5})), "inner sizes differ: got [3] and [5], expected 3 = 5");
  EXPECT_ERROR(matmul(in(DType::F32, {}), in(DType::F32, {5})), "needs operands of rank 1 or more, got [] and [5]");
  EXPECT_ERROR(matmul(in(DType::F32, {2, 3, 4}), in(DType::F32, {3, 4, 5})),
               "shapes do not broadcast: got [2] and [3]");
  EXPECT_ERROR(matmul(in(DType::Bool, {2, 2}), in(DType::Bool, {2, 2})), "needs numbers, got bool and bool");
  EXPECT_ERROR(matmul(in(DType::F32, {2, 2}), in(DType::F32, {2, 2}), DType::I32),
               "a product of f32 and f32 cannot be given as i32");
  EXPECT_ERROR(matmul(in(DType::I8, {2, 2}), in(DType::I8, {2, 2}), DType::Bool),
               "a product of i8 and i8 cannot be given as bool");
}

TEST(DotGeneral, LikePyTorch) {
  check_golden("dot_general", [](const Nodes& x) { return dot_general(x[0], x[1], {0}, {-1}, {2, -1}, {2, 0}); });
  check_golden("dot_general_all", [](const Nodes& x) { return dot_general(x[0], x[1], {}, {}, {0, 1}, {1, 0}); });
  check_golden("dot_general_outer", [](const Nodes& x) { return dot_general(x[0], x[1], {}, {}, {}, {}); });
}

TEST(DotGeneral, Errors) {
  Graph graph;
  Node a = graph.input("a", DType::F32, {2, 3}), b = graph.input("b", DType::F32, {3, 4});
  EXPECT_ERROR(dot_general(a, b, {}, {}, {1}, {}),
               "[dot_general] got 1 contract axes of lhs and 0 of rhs, expected as many");
  EXPECT_ERROR(dot_general(a, b, {}, {}, {1}, {1}), "contract axes 1 of [2,3] and 1 of [3,4] differ: 3 and 4");
  EXPECT_ERROR(dot_general(a, b, {0}, {0}, {}, {}), "batch axes 0 of [2,3] and 0 of [3,4] differ: 2 and 3");
  EXPECT_ERROR(dot_general(a, b, {1}, {0}, {-1}, {0}), "axis -1 of lhs stands twice among its batch and contract axes");
  EXPECT_ERROR(dot_general(a, b, {}, {}, {2}, {0}), "axis 2: expected one in [-2, 2)");
}

TEST(Conv, LikePyTorch) {
  auto with = [](ConvAttrs attrs) { return [attrs](const Nodes& x) { return conv(x[0], x[1], attrs); }; };
  check_golden("conv1d", with({}));
  check_golden("conv1d_all", with({.strides = {2}, .low = {1}, .high = {2}, .dilation = {2}, .groups = 2}));
  check_golden("conv2d", with({}));
  check_golden("conv2d_strided", with({.strides = {2, 3}, .low = {1, 0}, .high = {0, 2}}));
  check_golden("conv2d_dilated", with({.low = {1, 1}, .high = {1, 1}, .dilation = {2, 1}}));
  check_golden("conv2d_depthwise", with({.low = {1, 1}, .high = {1, 1}, .groups = 3}));
  check_golden("conv2d_past_the_end", with({.strides = {2, 2}}));
  check_golden("conv3d", with({.strides = {1, 2, 1}, .low = {1, 1, 1}, .high = {1, 0, 1}, .groups = 2}));
  check_golden("conv_batch_0", with({}));
}

TEST(Conv, TransposedLikePyTorch) {
  auto with = [](ConvTransposeAttrs attrs) {
    return [attrs](const Nodes& x) { return conv_transpose(x[0], x[1], attrs); };
  };
  check_golden("conv_transpose1d", with({}));
  check_golden("conv_transpose2d",
               with({.strides = {2, 3}, .low = {1, 1}, .high = {1, 1}, .dilation = {1, 2}, .output_padding = {1, 2}}));
  check_golden("conv_transpose2d_groups", with({.strides = {2, 2}, .groups = 2}));
  check_golden("conv_transpose3d", with({.strides = {1, 2, 1}, .low = {0, 1, 0}, .high = {0, 1, 0}}));
}

TEST(Conv, GradientsOfGradients) {
  ConvAttrs attrs{.strides = {2, 2}, .low = {1, 1}, .high = {1, 1}};
  check_golden("conv_backward_input", [=](const Nodes& x) { return conv_backward_input(x[0], x[1], attrs, {5, 6}); });
  check_golden("conv_backward_weight", [=](const Nodes& x) { return conv_backward_weight(x[0], x[1], attrs, {3, 2}); });
}

TEST(Conv, StridesThatDoNotReachTheEnd) {
  Graph graph;
  Feeds feeds;
  Node x = leaf(graph, feeds, "x", Array(std::vector<float>(36, 1), {1, 1, 6, 6})),
       w = leaf(graph, feeds, "w", Array(std::vector<float>(9, 1), {1, 1, 3, 3}));
  std::vector<double> c{1, 1, 2, 1, 1, 0}, expected;
  for (double row : c)
    for (double column : c) expected.push_back(row * column);
  expect_values(gradient(conv(x, w, {.strides = {2, 2}}), x, feeds), {1, 1, 6, 6}, expected);
  Node tall = leaf(graph, feeds, "tall", Array(DType::F32, {1, 16, 16, 1})),
       k = leaf(graph, feeds, "k", Array(DType::F32, {1, 16, 7, 1}));
  Node y = conv(tall, k, {.strides = {3, 1}, .low = {2, 0}, .high = {2, 0}});
  EXPECT_EQ(to_string(y.shape()), "[1,1,5,1]");
  EXPECT_EQ(to_string(grad(y, {tall})[0].shape()), "[1,16,16,1]");
}

TEST(Conv, PaddedStridedAndDilated) {
  Graph graph;
  Feeds feeds;
  Node x = leaf(graph, feeds, "x", floats({7, 3, 3, 2}, {2, 1, 2})),
       w = leaf(graph, feeds, "w", floats({3, 6, 4, 2}, {2, 1, 2}));
  Node y = conv(x, w, {.strides = {2}, .low = {1}, .high = {1}, .dilation = {2}});
  EXPECT_VALUES(evaluate(y, feeds), (Extents{2, 2, 1}), 18, 6, 12, 4);
  EXPECT_VALUES(gradient(y, w, feeds), (Extents{2, 1, 2}), 0, 5, 0, 5);
  EXPECT_VALUES(gradient(y, x, feeds), (Extents{2, 1, 2}), 0, 8, 0, 8);
}

TEST(Conv, IntegersAndSymbolicSizes) {
  Graph graph;
  Feeds feeds;
  Node x = leaf(graph, feeds, "x", ints({1, -2, 3, 4}, {1, 1, 4})),
       w = leaf(graph, feeds, "w", ints({1, -1}, {1, 1, 2}));
  EXPECT_VALUES(evaluate(conv(x, w), feeds), (Extents{1, 1, 3}), 3, -5, -1);
  Graph symbolic;
  Node s = symbolic.input("s", DType::F32, {Dim::symbol("n"), 2, Dim::symbol("length")}),
       k = symbolic.param("k", DType::F32, {3, 2, 3});
  Node y = conv(s, k, {.strides = {2}, .low = {1}, .high = {1}});
  EXPECT_EQ(to_string(y.type()), "f32[n,3,floor(length + 1, 2)]");
  Node dx = grad(y, {s})[0];
  EXPECT_EQ(to_string(dx.type()), "f32[n,2,length]");
  EXPECT_EQ(
      evaluate(Nodes{dx, s}, {{"s", Array(DType::F32, {2, 2, 6})}, {"k", Array(DType::F32, {3, 2, 3})}})[0].shape(),
      (Extents{2, 2, 6}));
  EXPECT_EQ(
      to_string(conv_transpose(s, symbolic.param("t", DType::F32, {2, 3, 2}), {.strides = {2}, .output_padding = {1}})
                    .type()),
      "f32[n,3,2*length + 1]");
  symbolic.verify();
}

TEST(Conv, Errors) {
  Graph graph;
  Node x = graph.input("x", DType::F32, {1, 4, 5, 5}), w = graph.input("w", DType::F32, {6, 4, 3, 3}),
       v = graph.input("v", DType::F32, {4, 5});
  EXPECT_ERROR(conv(x, w, {.dilation = {0, 1}}),
               "[conv] dilation is [0,1], expected 1 or more (in conv(%0 \"x\" f32[1,4,5,5]");
  EXPECT_ERROR(conv(x, w, {.dilation = {1, -1}}), "dilation is [1,-1], expected 1 or more");
  EXPECT_ERROR(conv(x, w, {.strides = {1, 0}}), "strides is [1,0], expected 1 or more");
  EXPECT_ERROR(conv(x, w, {.groups = 0}), "groups is 0, expected 1 or more");
  EXPECT_ERROR(conv(x, w, {.low = {-1, 0}}), "low is [-1,0], expected 0 or more");
  EXPECT_ERROR(conv(x, w, {.strides = {1}}), "strides has 1 entries, expected one for each of 2 spatial axes");
  EXPECT_ERROR(conv(x, w, {.groups = 2}),
               "the input [1,4,5,5] has 4 channels, the weight [6,4,3,3] with 2 groups takes 8");
  EXPECT_ERROR(conv(x, graph.input("o", DType::F32, {5, 2, 3, 3}), {.groups = 2}),
               "5 output channels do not divide into 2 groups");
  EXPECT_ERROR(conv(x, v), "input and weight need the same rank of 3 to 5");
  EXPECT_ERROR(conv(x, w, {.dilation = {3, 3}}),
               "the kernel reaches over 7 of spatial axis 0, but the padded input has 5");
  EXPECT_ERROR(conv(x, graph.input("e", DType::F32, {6, 4, 0, 3})), "the kernel is empty: [0,3]");
  EXPECT_ERROR(conv(graph.input("b", DType::Bool, {1, 4, 5, 5}), graph.input("c", DType::Bool, {6, 4, 3, 3})),
               "needs numbers, got bool and bool");
  Node dy = graph.input("dy", DType::F32, {1, 6, 3, 3});
  EXPECT_ERROR(conv_backward_input(dy, w, {}, {6, 5}), "dy has spatial sizes [3,3], expected [4,3] by the convolution");
  EXPECT_ERROR(conv_backward_input(dy, w, {}, {5}), "size is [5], expected 2 spatial sizes");
  EXPECT_ERROR(conv_backward_input(x, w, {}, {7, 7}), "dy [1,4,5,5] has 4 channels, the weight [6,4,3,3] gives 6");
  EXPECT_ERROR(conv_backward_weight(x, graph.input("two", DType::F32, {2, 6, 3, 3}), {}, {3, 3}),
               "batches differ: got [1,4,5,5] and [2,6,3,3]");
  EXPECT_ERROR(conv_backward_weight(x, dy, {.groups = 3}, {3, 3}), "4 input channels do not divide into 3 groups");
  Node t = graph.input("t", DType::F32, {4, 6, 3, 3});
  EXPECT_ERROR(conv_transpose(x, t, {.output_padding = {1, 0}}),
               "output_padding is [1,0], expected 0 or more and less than the strides [1,1]");
  EXPECT_ERROR(conv_transpose(x, t, {.output_padding = {1}}),
               "output_padding has 1 entries, expected one for each of 2 spatial axes");
  EXPECT_ERROR(conv_transpose(x, t, {.low = {9, 0}}), "the padding takes more than the [1,4,5,5] of spatial axis 0");
}
