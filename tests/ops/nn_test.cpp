// Softmax, norms, losses, rope and attention: values and gradients of PyTorch, edge cases, and one test a message.
#include <cmath>

#include "ops/golden/golden.h"
#include "ops/values.h"

using namespace rlx;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

Node leaf(Graph& graph, Feeds& feeds, const std::string& name, const Array& value) {
  feeds.emplace(name, value);
  return graph.input(name, value.type());
}

}  // namespace

TEST(Softmax, LikePyTorch) {
  for (auto [suffix, axis] : {std::pair{"", -1}, {"_axis", 1}, {"_rows", -1}, {"_infinite", -1}}) {
    check_golden(std::string("softmax") + suffix, [axis = axis](const Nodes& x) { return softmax(x[0], axis); });
    check_golden(std::string("log_softmax") + suffix,
                 [axis = axis](const Nodes& x) { return log_softmax(x[0], axis); });
    check_golden(std::string("logsumexp") + suffix, [axis = axis](const Nodes& x) { return logsumexp(x[0], axis); });
  }
}

TEST(Softmax, MaskedRowsAreZero) {
  Graph graph;
  Feeds feeds;
  Node x = leaf(graph, feeds, "x", doubles({1, 2, 3, -2e4, -2e4, -kInf, -kInf, -kInf, -kInf}, {3, 3}));
  EXPECT_VALUES(evaluate(masked_softmax(x), feeds), (Extents{3, 3}), std::exp(-2) / (1 + std::exp(-1) + std::exp(-2)),
                std::exp(-1) / (1 + std::exp(-1) + std::exp(-2)), 1 / (1 + std::exp(-1) + std::exp(-2)), 0.5, 0.5, 0, 0,
                0, 0);
  Node mask = leaf(graph, feeds, "mask", ints({1, 0, 1}, {3}).cast(DType::Bool));
  Node y = masked_softmax(x, mask);
  EXPECT_VALUES(evaluate(y, feeds), (Extents{3, 3}), std::exp(-2) / (1 + std::exp(-2)), 0, 1 / (1 + std::exp(-2)), 1, 0,
                0, 0, 0, 0);
  Array dx = gradient(y, x, feeds, doubles({1, 2, 3, 4, 5, 6, 7, 8, 9}, {3, 3}));
  for (int i : {1, 3, 4, 5, 6, 7, 8}) EXPECT_EQ(dx.at(i), 0) << i;
  EXPECT_NEAR(dx.at(2), 2 * std::exp(-2) / ((1 + std::exp(-2)) * (1 + std::exp(-2))), 1e-15);
}

TEST(Logsumexp, GradientOfInfiniteRowIsZero) {
  Graph graph;
  Feeds feeds;
  Node x = leaf(graph, feeds, "x", doubles({-kInf, -kInf, 0, 0}, {2, 2}));
  Node y = logsumexp(x, 1, true);
  EXPECT_EQ(to_string(y.shape()), "[2,1]");
  EXPECT_VALUES(gradient(y, x, feeds), (Extents{2, 2}), 0, 0, 0.5, 0.5);
}

TEST(Norm, LikePyTorch) {
  check_golden("layer_norm", [](const Nodes& x) { return layer_norm(x[0], x[1], x[2]); });
  check_golden("layer_norm_axes", [](const Nodes& x) { return layer_norm(x[0], x[1], x[2], 1, 1e-3); });
  check_golden("layer_norm_plain", [](const Nodes& x) { return layer_norm(x[0]); });
  check_golden("rms_norm", [](const Nodes& x) { return rms_norm(x[0], x[1]); });
  check_golden("rms_norm_plain", [](const Nodes& x) { return rms_norm(x[0], none, 1e-2); });
  check_golden("group_norm", [](const Nodes& x) { return group_norm(x[0], x[1], x[2], 2); });
  check_golden("instance_norm", [](const Nodes& x) { return group_norm(x[0], none, none, 4); });
}

TEST(Norm, VarianceTakesTwoPasses) {
  Graph graph;
  Feeds feeds;
  Node x = leaf(graph, feeds, "x", floats({40000, 40001, 40002, 40003}, {4}));
  Array y = evaluate(layer_norm(x), feeds);
  std::vector<double> expected{-1.3416354, -0.4472118, 0.4472118, 1.3416354};
  for (int i = 0; i < 4; ++i) EXPECT_NEAR(y.at(i), expected[std::size_t(i)], 1e-6);
  Node flat = leaf(graph, feeds, "flat", floats(std::vector<float>(256, 1234), {256}));
  expect_values(evaluate(layer_norm(flat), feeds), {256}, std::vector<double>(256, 0));
  std::vector<float> ramp;
  for (int i = 0; i < 16; ++i) ramp.push_back(float(100 + i * 1e-3));
  EXPECT_NEAR(evaluate(layer_norm(leaf(graph, feeds, "ramp", floats(ramp, {16})), none, none, 0, 1e-5), feeds).at(0),
              -1.34153, 2e-3);
}

TEST(Norm, MixedDtypesAndNarrowSums) {
  Graph graph;
  Feeds feeds;
  Node x = leaf(graph, feeds, "x", floats({300, 400, 500, 600}, {1, 4}).cast(DType::F16)),
       gamma = leaf(graph, feeds, "g", floats({1, 1, 1, 2}, {4}));
  Node y = rms_norm(x, gamma);  // the squares overflow f16
  EXPECT_EQ(y.dtype(), DType::F16);
  EXPECT_NEAR(evaluate(y, feeds).at(3), 2 * 600 / std::sqrt(215000.0), 2e-3);
  Nodes grads = grad(y, {x, gamma});
  EXPECT_EQ(grads[0].dtype(), DType::F16);
  EXPECT_EQ(grads[1].dtype(), DType::F32);
}

TEST(BatchNorm, LikePyTorch) {
  // PyTorch takes no gradient of the running statistics: they stand behind a stop_gradient.
  check_golden("batch_norm", [](const Nodes& x) {
    return batch_norm_inference(x[0], x[1], x[2], stop_gradient(x[3]), stop_gradient(x[4]));
  });
  check_golden("batch_norm_nhwc", [](const Nodes& x) {
    return batch_norm_inference(x[0], x[1], x[2], stop_gradient(x[3]), stop_gradient(x[4]), -1, 1e-3);
  });
}

TEST(BatchNorm, BackwardIsThreeComposites) {
  Graph graph;
  Node x = graph.input("x", DType::F32, {2, 3, 4, 4});
  Nodes stats;
  for (auto* name : {"gamma", "beta", "mean", "var"}) stats.push_back(graph.param(name, DType::F32, {3}));
  Node y = batch_norm_inference(x, stats[0], stats[1], stats[2], stats[3]);
  Nodes d = grad(y, {x, stats[0], stats[1]});
  EXPECT_TRUE(d[0].is(ops::batch_norm_inference_backward_input));
  EXPECT_TRUE(d[1].is(ops::batch_norm_inference_backward_gamma));
  EXPECT_TRUE(d[2].is(ops::batch_norm_inference_backward_beta));
  std::vector<std::string> backward;
  for (auto* op : builtin_ops())
    if (op->backward) backward.emplace_back(op->name);
  EXPECT_EQ(backward,
            (std::vector<std::string>{"relu_backward", "activation_backward", "batch_norm_inference_backward_input",
                                      "batch_norm_inference_backward_gamma", "batch_norm_inference_backward_beta"}));
}

TEST(CrossEntropy, LikePyTorch) {
  check_golden("cross_entropy", [](const Nodes& x) { return cross_entropy(x[0], x[1]); });
  check_golden("cross_entropy_each", [](const Nodes& x) { return cross_entropy(x[0], x[1], Reduction::None); });
  check_golden("cross_entropy_sum", [](const Nodes& x) { return cross_entropy(x[0], x[1], Reduction::Sum); });
  check_golden("cross_entropy_ignored", [](const Nodes& x) { return cross_entropy(x[0], x[1], Reduction::Mean, 4); });
}

TEST(CrossEntropy, LabelsOutsideAndIgnored) {
  Graph graph;
  Feeds feeds;
  Node x = leaf(graph, feeds, "x", floats({0, 1, 2, 3, 4, 5}, {2, 3})), labels = graph.input("labels", DType::I32, {2});
  Node loss = cross_entropy(x, labels);
  feeds["labels"] = ints({0, 3}, {2});
  EXPECT_ERROR(evaluate(loss, feeds), "[cross_entropy] label 3 at position 1 is outside [0, 3)");
  feeds["labels"] = ints({-1, 0}, {2});
  EXPECT_ERROR(evaluate(loss, feeds), "label -1 at position 0 is outside [0, 3)");
  feeds["labels"] = ints({-100, -100}, {2});
  EXPECT_EQ(evaluate(loss, feeds).at(0), 0);
  expect_values(gradient(loss, x, feeds), {2, 3}, std::vector<double>(6, 0));
  EXPECT_EQ(cross_entropy(cast(x, DType::BF16), labels).dtype(), DType::F32);
  EXPECT_EQ(grad(cross_entropy(cast(x, DType::BF16), labels), {x})[0].dtype(), DType::F32);
}

TEST(Rope, TurnsByComplexNumbers) {
  check_golden("rope_half", [](const Nodes& x) { return rope(x[0], x[1]); });
  check_golden("rope_interleaved", [](const Nodes& x) { return rope(x[0], x[1], 10000, true); });
  check_golden("rope_partial", [](const Nodes& x) { return rope(x[0], x[1], 500, false, 4); });
  check_golden("rope_partial_interleaved", [](const Nodes& x) { return rope(x[0], x[1], 500, true, 2); });
  check_golden("rope_batch", [](const Nodes& x) { return rope(x[0], x[1]); });
}

TEST(Rope, InverseUndoesIt) {
  Graph graph;
  Feeds feeds;
  Node x = leaf(graph, feeds, "x", doubles({1, 2, 3, 4, 5, 6, 7, 8}, {2, 4})),
       at = leaf(graph, feeds, "at", ints({3, 100}, {2}));
  Node back = rope(rope(x, at, 10000, true), at, 10000, true, 0, true);
  for (int i = 0; i < 8; ++i) EXPECT_NEAR(evaluate(back, feeds).at(i), i + 1, 1e-14);
}

TEST(Attention, LikePyTorch) {
  auto with = [](AttentionAttrs attrs) {
    return [attrs](const Nodes& x) { return attention(x[0], x[1], x[2], attrs, x.size() > 3 ? x[3] : none); };
  };
  check_golden("attention", with({}));
  check_golden("attention_scale", with({.scale = 0.3}));
  check_golden("attention_causal", with({.mask = AttentionMask::Causal}));
  check_golden("attention_window", with({.mask = AttentionMask::SlidingWindow, .window = 2}));
  check_golden("attention_softcap", with({.softcap = 0.7}));
  check_golden("attention_custom", with({.mask = AttentionMask::Custom}));
  check_golden("attention_bias", with({.mask = AttentionMask::Bias}));
  check_golden("attention_bias_row", with({.mask = AttentionMask::Bias}));
  check_golden("attention_hidden_by_bias", with({.mask = AttentionMask::Bias}));
  check_golden("attention_grouped", with({.mask = AttentionMask::Causal}));
  check_golden("attention_grouped_mask", with({.mask = AttentionMask::Custom}));
}

TEST(Attention, KeyLengths) {
  auto with = [](std::vector<std::int64_t> lengths, AttentionAttrs attrs) {
    return [=](const Nodes& x) {
      return attention(x[0], x[1], x[2], attrs, none, x[0].graph().constant(Array(lengths, {2})));
    };
  };
  check_golden("attention_lengths", with({2, 5}, {}));
  check_golden("attention_lengths_causal", with({4, 5}, {.mask = AttentionMask::Causal}));
}

TEST(Attention, RowWithoutKeysGivesZeroAndLeavesOthersAlone) {
  Graph graph;
  Feeds feeds;
  Node q = leaf(graph, feeds, "q", doubles({1, 2, 3, 4}, {1, 1, 2, 2})),
       k = leaf(graph, feeds, "k", doubles({1, 0, 0, 1}, {1, 1, 2, 2}));
  Node v = leaf(graph, feeds, "v", doubles({5, 6, 7, 8}, {1, 1, 2, 2}));
  Node all = graph.constant(ints({0, 0, 1, 1}, {2, 2}).cast(DType::Bool)),
       hidden = graph.constant(doubles({-kInf, -kInf, 0, 0}, {2, 2}));
  for (Node y : {attention(q, k, v, {.mask = AttentionMask::Custom}, all),
                 attention(q, k, v, {.mask = AttentionMask::Bias}, hidden)}) {
    Array got = evaluate(y, feeds), plain = evaluate(attention(q, k, v), feeds);
    EXPECT_EQ(got.at(0), 0);
    EXPECT_EQ(got.at(1), 0);
    EXPECT_EQ(got.at(2), plain.at(2));
    EXPECT_EQ(got.at(3), plain.at(3));
    Array dq = gradient(y, q, feeds);
    EXPECT_EQ(dq.at(0), 0);
    EXPECT_EQ(dq.at(1), 0);
    for (Node x : {k, v})
      for (int i = 0; i < 4; ++i) EXPECT_TRUE(std::isfinite(gradient(y, x, feeds).at(i)));
  }
  Node low = graph.constant(doubles({-2e4, -2e4, 0, 0}, {2, 2}));  // shifts both scores of a row alike
  Array got = evaluate(attention(q, k, v, {.mask = AttentionMask::Bias}, low), feeds),
        plain = evaluate(attention(q, k, v), feeds);
  for (int i = 0; i < 4; ++i) EXPECT_NEAR(got.at(i), plain.at(i), 1e-11);
  // more queries than keys: the first stand before every key
  Node y = attention(q, k, v, {.mask = AttentionMask::Causal}, none, graph.constant(longs({1}, {1})));
  EXPECT_VALUES(evaluate(y, feeds), (Extents{1, 1, 2, 2}), 0, 0, 5, 6);
}

TEST(Attention, CacheOfFixedCapacityGivesWhatTheWholeSequenceGives) {
  Dim batch = Dim::symbol("batch"), seq = Dim::symbol("seq"), capacity = Dim::symbol("capacity");
  Graph graph;
  Node q = graph.input("q", DType::F64, {batch, 2, seq, 2}), k = graph.input("k", DType::F64, {batch, 1, capacity, 2});
  Node v = graph.input("v", DType::F64, {batch, 1, capacity, 2}), lengths = graph.input("lengths", DType::I32, {batch});
  Node cached = attention(q, k, v, {.mask = AttentionMask::Causal}, none, lengths),
       whole = attention(q, k, v, {.mask = AttentionMask::Causal});
  EXPECT_EQ(to_string(cached.type()), "f64[batch,2,seq,2]");
  graph.verify();
  Array all_q(DType::F64, {1, 2, 4, 2}), all_k(DType::F64, {1, 1, 4, 2}), all_v(DType::F64, {1, 1, 4, 2}),
      big_k(DType::F64, {1, 1, 9, 2}), big_v(DType::F64, {1, 1, 9, 2});
  for (int i = 0; i < 16; ++i) all_q.values<double>()[std::size_t(i)] = std::sin(i);
  for (std::size_t i = 0; i < 8; ++i) {
    big_k.values<double>()[i] = all_k.values<double>()[i] = std::cos(double(i));
    big_v.values<double>()[i] = all_v.values<double>()[i] = double(i);
  }
  for (std::size_t i = 8; i < 18; ++i) big_k.values<double>()[i] = big_v.values<double>()[i] = 99;
  Array expected = evaluate(whole, {{"q", all_q}, {"k", all_k}, {"v", all_v}});
  Array last(DType::F64, {1, 2, 1, 2});
  for (std::size_t i = 0; i < 4; ++i) last.values<double>()[i] = all_q.values<double>()[i / 2 * 8 + 6 + i % 2];
  Array got = evaluate(cached, {{"q", last}, {"k", big_k}, {"v", big_v}, {"lengths", ints({4}, {1})}});
  for (int i = 0; i < 4; ++i) EXPECT_NEAR(got.at(i), expected.at(i / 2 * 8 + 6 + i % 2), 1e-14);
}

TEST(Nn, TextRoundTrips) {
  Graph graph;
  Node q = graph.input("q", DType::F32, {Dim::symbol("b"), 4, Dim::symbol("t"), 8}),
       at = graph.input("at", DType::I32, {Dim::symbol("t")});
  Node y =
      attention(rope(q, at, 500, true, 4), q, q, {.mask = AttentionMask::SlidingWindow, .window = 3, .softcap = 30});
  Node loss = cross_entropy(reshape(y, {Dim::symbol("b") * Dim::symbol("t") * 4, 8}),
                            graph.input("labels", DType::I64, {Dim::symbol("b") * Dim::symbol("t") * 4}));
  graph.set_outputs({loss});
  Graph backward = grad_with_loss(graph, {q});
  backward.verify();
  EXPECT_EQ(Graph::parse(backward.text()).text(), backward.text());
}

TEST(Nn, Errors) {
  Graph graph;
  auto in = [&](DType d, Shape s) { return graph.input("x" + std::to_string(graph.size()), d, std::move(s)); };
  auto f = [&](Shape s) { return in(DType::F32, std::move(s)); };
  EXPECT_ERROR(softmax(in(DType::I32, {2})), "[softmax] needs a float, got i32");
  EXPECT_ERROR(softmax(f({2}), 1), "axis 1: expected one in [-1, 1)");
  EXPECT_ERROR(layer_norm(f({2, 3}), f({2})), "gamma of shape [2] does not broadcast to [2,3]");
  EXPECT_ERROR(layer_norm(f({2, 3}), f({3}), f({2, 2, 3})), "beta of shape [2,2,3] does not broadcast to [2,3]");
  EXPECT_ERROR(layer_norm(f({2, 3}), none, f({3})), "input 1 is empty");
  EXPECT_ERROR(group_norm(f({2, 3, 4}), none, none, 2), "3 channels do not divide into 2 groups");
  EXPECT_ERROR(group_norm(f({2, 3, 4}), none, none, 0), "groups is 0, expected 1 or more");
  EXPECT_ERROR(group_norm(f({2}), none, none, 1), "needs [N, C, …], got [2]");
  EXPECT_ERROR(group_norm(f({2, 4, 4}), f({2}), none, 2), "gamma needs one entry a channel of [2,4,4], got [2]");
  Node c = f({3});
  EXPECT_ERROR(batch_norm_inference(f({2, 4}), c, c, c, c), "needs one entry a channel (axis 1 of [2,4]), got [3]");
  EXPECT_ERROR(cross_entropy(f({2, 3}), in(DType::I32, {3})),
               "needs logits [..., classes] and integer labels [...], got f32[2,3] and i32[3]");
  EXPECT_ERROR(cross_entropy(f({2, 3}), f({2})), "got f32[2,3] and f32[2]");
  EXPECT_ERROR(rope(f({2, 4}), in(DType::I32, {3})), "needs integer positions of shape [2] for x of [2,4], got i32[3]");
  EXPECT_ERROR(rope(f({5, 2, 4}), f({2})),
               "needs integer positions of shape [2] or [5,2] for x of [5,2,4], got f32[2]");
  EXPECT_ERROR(rope(f({2, 3}), in(DType::I32, {2})),
               "rotates pairs: got 3 dims of [2,3], expected an even number from 2 to the last axis");
  EXPECT_ERROR(rope(f({2, 4}), in(DType::I32, {2}), 10000, false, 6), "rotates pairs: got 6 dims of [2,4]");
  EXPECT_ERROR(rope(f({4}), in(DType::I32, {4})), "needs [..., T, D], got [4]");
}

TEST(Attention, Errors) {
  Graph graph;
  auto in = [&](DType d, Shape s) { return graph.input("x" + std::to_string(graph.size()), d, std::move(s)); };
  auto f = [&](Shape s) { return in(DType::F32, std::move(s)); };
  Node q = f({1, 4, 3, 2}), k = f({1, 2, 5, 2}), v = f({1, 2, 5, 3});
  EXPECT_ERROR(attention(f({4, 3, 2}), k, v),
               "[attention] needs q [B,H,T,D], k [B,K,S,D] and v [B,K,S,E], got q [4,3,2]");
  EXPECT_ERROR(attention(q, k, f({1, 2, 4, 3})), "k and v differ in axis 2");
  EXPECT_ERROR(attention(f({2, 4, 3, 2}), k, v), "batches differ");
  EXPECT_ERROR(attention(f({1, 4, 3, 3}), k, v), "head sizes of q and k differ");
  EXPECT_ERROR(attention(f({1, 3, 3, 2}), k, v), "3 query heads are no multiple of 2 key heads");
  EXPECT_ERROR(attention(q, k, v, {.mask = AttentionMask::Custom}),
               "the mask kind custom without key lengths takes 4 inputs, got 3");
  EXPECT_ERROR(attention(q, k, v, {}, f({3, 5})), "the mask kind none without key lengths takes 3 inputs, got 4");
  EXPECT_ERROR(attention(q, k, v, {.mask = AttentionMask::SlidingWindow}), "the window is 0, expected 1 or more");
  EXPECT_ERROR(attention(q, k, v, {.softcap = -1}), "softcap is -1, expected 0 or more");
  EXPECT_ERROR(attention(q, k, v, {.mask = AttentionMask::Custom}, f({3, 5})),
               "a custom mask must be bool (a float one is a bias), got f32[3,5]");
  EXPECT_ERROR(attention(q, k, v, {.mask = AttentionMask::Bias}, in(DType::Bool, {3, 5})),
               "a bias must be a float (a bool one is a custom mask), got bool[3,5]");
  EXPECT_ERROR(attention(q, k, v, {.mask = AttentionMask::Bias}, f({2, 3, 5})),
               "the bias [2,3,5] does not broadcast to [1,4,3,5]");
  EXPECT_ERROR(attention(q, k, v, {}, none, in(DType::I32, {2})),
               "the key lengths need to be integers of shape [1], got i32[2]");
}
