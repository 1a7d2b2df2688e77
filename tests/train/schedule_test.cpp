// Schedules at the steps whose values follow from their definition.
#include "train/schedule.h"

#include <gtest/gtest.h>

using namespace rlx;

TEST(Schedule, RisesOverTheWarmUp) {
  for (auto name : {"constant", "linear", "cosine", "bitnet"})
    for (int step : {0, 1, 2})
      EXPECT_DOUBLE_EQ(schedule_at(name, step, 100, 3).learning_rate, (step + 1) / 4.0) << name;
}

TEST(Schedule, FallsToZeroAfterTheLastStep) {
  EXPECT_DOUBLE_EQ(schedule_at("constant", 99, 100, 0).learning_rate, 1);
  EXPECT_DOUBLE_EQ(schedule_at("linear", 0, 100, 0).learning_rate, 1);
  EXPECT_NEAR(schedule_at("linear", 99, 100, 0).learning_rate, 0.01, 1e-15);
  EXPECT_DOUBLE_EQ(schedule_at("linear", 55, 100, 10).learning_rate, 0.5);
  EXPECT_DOUBLE_EQ(schedule_at("cosine", 50, 100, 0).learning_rate, 0.5);
  EXPECT_NEAR(schedule_at("cosine", 100, 100, 0).learning_rate, 0, 1e-15);
}

TEST(Schedule, BitnetHasTwoStages) {
  auto before = schedule_at("bitnet", 49, 100, 0), after = schedule_at("bitnet", 50, 100, 0);
  EXPECT_NEAR(before.learning_rate, 0.51, 1e-15);
  EXPECT_DOUBLE_EQ(before.weight_decay, 1);
  EXPECT_NEAR(after.learning_rate, 1.0 / 3, 1e-15);
  EXPECT_DOUBLE_EQ(after.weight_decay, 0);
}

TEST(Schedule, UnknownNamesAreRefused) { EXPECT_THROW(schedule_at("exponential", 0, 1, 0), UserError); }
