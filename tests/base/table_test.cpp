// Aligned tables.
#include "base/table.h"

#include <gtest/gtest.h>

#include "rlx/base.h"

namespace rlx {
namespace {

TEST(Table, NumbersStandRightAndTextLeft) {
  Table table({"tensor", "bytes", "type"});
  table.add_row({"blk.0.attn_q", "66", "TQ2_0"});
  table.add_row({"naïve", "1024", "F32"});
  table.add_row({"x", "-", "F32"});
  EXPECT_EQ(table.text(),
            "tensor        bytes  type\n"
            "------------  -----  -----\n"
            "blk.0.attn_q     66  TQ2_0\n"
            "naïve          1024  F32\n"
            "x                 -  F32\n");
}

TEST(Table, OneCellForEachHeader) {
  Table table({"a", "b"});
  EXPECT_THROW(table.add_row({"1"}), UserError);
}

}  // namespace
}  // namespace rlx
