#include <gtest/gtest.h>

#include "ops/eval.h"
#include "passes/passes.h"
#include "rlx/ops.h"

namespace rlx {
namespace {

struct Product {
  Graph graph;
  Node a = graph.input("a", DType::U8, {3, 40}), b = graph.input("b", DType::U8, {2, 40});
  Node scale = graph.input("scale", DType::U8, {3, 2}), x = graph.input("x", DType::F32, {40, 2});
  Graph rewritten;

  Node by(Node left, Node right) {
    graph.set_outputs({matmul(left, right)});
    rewritten = use_bf16_matmul(graph).graph;
    return rewritten.outputs()[0];
  }
};

TEST(UseBf16Matmul, DecodedOperandsAreTakenAsBf16) {
  Product p;
  Node right = transpose(from_format(p.b, Format::F8E4M3), {1, 0});
  Node out = p.by(from_format(p.a, Format::F8E5M2), right);
  EXPECT_EQ(out.dtype(), DType::F32);
  EXPECT_EQ(out.input(0).dtype(), DType::BF16);
  EXPECT_TRUE(out.input(1).is(ops::transpose) && out.input(1).input(0).is(ops::from_format)) << out.graph().text();
  EXPECT_EQ(out.input(1).dtype(), DType::BF16);
  out = p.by(scaled_dequantize(p.a, p.scale, Format::F4E2M1, ScaleLayout::Mx), right);
  EXPECT_EQ(out.input(0).dtype(), DType::BF16);
}

TEST(UseBf16Matmul, WhatBf16MayRoundStays) {
  Product p;
  Node left = from_format(p.a, Format::F8E4M3), tensor = p.graph.input("tensor", DType::F32, {1});
  EXPECT_EQ(p.by(left, p.x).input(0).dtype(), DType::F32);
  EXPECT_EQ(p.by(scaled_dequantize(p.a, tensor, Format::F8E4M3, ScaleLayout::PerTensor), p.x).input(0).dtype(),
            DType::F32);
  Node right = transpose(from_format(p.b, Format::F8E4M3), {1, 0});
  Node blocks = p.graph.input("blocks", DType::U8, {3, 3});
  Node whole = scaled_dequantize(p.a, blocks, Format::F4E2M1, ScaleLayout::Nvfp4, tensor);
  EXPECT_EQ(p.by(whole, right).input(0).dtype(), DType::F32);
}

// Every pair of codes, each product exact.
TEST(UseBf16Matmul, TheValueIsTheSame) {
  for (int i = 0; i < kFormatCount; ++i) {
    const FormatInfo& f = info(Format(i));
    if (f.specials == FormatInfo::Specials::Scale) continue;
    Graph g;
    int codes = 1 << f.bits;
    Node a = g.input("a", DType::U8, {codes, 1}), b = g.input("b", DType::U8, {1, codes});
    g.set_outputs({matmul(from_format(a, Format(i)), from_format(b, Format(i)))});
    Array values(DType::U8, {codes, 1});
    for (int c = 0; c < codes; ++c) values.values<std::uint8_t>()[std::size_t(c)] = std::uint8_t(c);
    Feeds feeds{{"a", values}, {"b", values.reshaped({1, codes})}};
    Graph narrow = use_bf16_matmul(g).graph;
    EXPECT_EQ(narrow.outputs()[0].input(0).dtype(), DType::BF16);
    EXPECT_TRUE(identical(evaluate(narrow.outputs()[0], feeds), evaluate(g.outputs()[0], feeds))) << f.name;
  }
}

}  // namespace
}  // namespace rlx
