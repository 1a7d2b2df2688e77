// parallel_for: every chunk once, for any thread count; exceptions, nesting, quotas, idle behaviour.
#include "base/parallel.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <vector>

#include "rlx/base.h"
#include "temporary.h"

namespace rlx {
namespace {

class Parallel : public testing::TestWithParam<int> {
 protected:
  void SetUp() override { set_num_threads(GetParam()); }
  void TearDown() override { set_num_threads(default_num_threads()); }
};

TEST_P(Parallel, RunsEveryChunkOnce) {
  for (std::int64_t n : {0, 1, 2, 3, 7, 64, 1000}) {
    std::vector<std::atomic<int>> hits(static_cast<std::size_t>(n));
    parallel_for(n, [&](std::int64_t i) { ++hits[std::size_t(i)]; });
    for (auto& h : hits) EXPECT_EQ(h, 1);
  }
}

TEST_P(Parallel, SplitsByGrain) {
  std::vector<int> owner(103, -1);
  parallel_for(103, 10, [&](std::int64_t begin, std::int64_t end) {
    EXPECT_EQ(begin % 10, 0);
    EXPECT_LE(end - begin, 10);
    for (auto i = begin; i < end; ++i) owner[std::size_t(i)] = int(begin);
  });
  for (int i = 0; i < 103; ++i) EXPECT_EQ(owner[std::size_t(i)], i / 10 * 10);
}

TEST_P(Parallel, ManyShortJobs) {
  std::int64_t total = 0;
  for (int job = 0; job < 20000; ++job) {
    std::int64_t part[3] = {};
    parallel_for(3, [&](std::int64_t i) { part[i] = i + job; });
    total += part[0] + part[1] + part[2];
  }
  EXPECT_EQ(total, 20000LL * 3 + 3LL * 20000 * 19999 / 2);
}

TEST_P(Parallel, RethrowsTheExceptionOfTheLowestChunk) {
  for (int round = 0; round < 200; ++round) {
    std::atomic<int> done = 0;
    try {
      parallel_for(50, [&](std::int64_t i) {
        if (i % 10 == 7) throw std::runtime_error(std::to_string(i));
        ++done;
      });
      FAIL();
    } catch (const std::runtime_error& e) {
      EXPECT_STREQ(e.what(), "7");
    }
    EXPECT_GE(done, 7);
  }
  std::atomic<int> after = 0;
  parallel_for(10, [&](std::int64_t) { ++after; });
  EXPECT_EQ(after, 10);
}

TEST_P(Parallel, NestedCallsRunInline) {
  std::vector<std::atomic<int>> hits(64);
  parallel_for(8, [&](std::int64_t i) {
    auto id = std::this_thread::get_id();
    parallel_for(8, [&](std::int64_t j) {
      EXPECT_EQ(std::this_thread::get_id(), id);
      ++hits[std::size_t(i * 8 + j)];
    });
    if (num_threads() > 1) {
      EXPECT_THROW(set_num_threads(1), UserError);
    }
  });
  for (auto& h : hits) EXPECT_EQ(h, 1);
}

TEST_P(Parallel, SeveralCallersAtOnce) {
  std::atomic<std::int64_t> sum = 0;
  std::vector<std::thread> callers;
  for (int t = 0; t < 4; ++t)
    callers.emplace_back([&] {
      for (int job = 0; job < 500; ++job) parallel_for(5, [&](std::int64_t i) { sum += i; });
    });
  for (auto& caller : callers) caller.join();
  EXPECT_EQ(sum, 4 * 500 * 10);
}

INSTANTIATE_TEST_SUITE_P(Threads, Parallel, testing::Values(1, 2, 4));

TEST(ParallelSettings, RefusesNonsense) {
  EXPECT_THROW(set_num_threads(0), UserError);
  EXPECT_THROW(set_num_threads(-3), UserError);
  EXPECT_GE(default_num_threads(), 1);
}

TEST(ParallelSettings, ForkedChildStillComputes) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "TSan does not support new threads after a fork";
#endif
  set_num_threads(2);
  parallel_for(8, [](std::int64_t) {});
  pid_t child = fork();
  if (child == 0) {
    std::atomic<int> hits = 0;
    parallel_for(100, [&](std::int64_t) { ++hits; });
    set_num_threads(3);
    parallel_for(100, [&](std::int64_t) { ++hits; });
    _exit(hits == 200 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  set_num_threads(default_num_threads());
}

TEST(ParallelSettings, IdleWorkersSleep) {
  set_num_threads(4);
  parallel_for(16, [](std::int64_t) {});
  auto cpu = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return double(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           1e-6 * double(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
  };
  double before = cpu();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_LT(cpu() - before, 0.02);
  set_num_threads(default_num_threads());
}

TEST(CpuQuota, Version2) {
  using detail::cores_of_cpu_max;
  EXPECT_EQ(cores_of_cpu_max("400000 100000\n"), 4);
  EXPECT_EQ(cores_of_cpu_max("765000 100000\n"), 7);
  EXPECT_EQ(cores_of_cpu_max("50000 100000"), 1);
  EXPECT_EQ(cores_of_cpu_max("100000 50000"), 2);
  EXPECT_EQ(cores_of_cpu_max("300000"), 3);
  EXPECT_EQ(cores_of_cpu_max("max 100000\n"), std::nullopt);
  EXPECT_EQ(cores_of_cpu_max(""), std::nullopt);
  EXPECT_EQ(cores_of_cpu_max("100000 0"), std::nullopt);
  EXPECT_EQ(cores_of_cpu_max("99999999999999999999 1"), std::nullopt);
}

TEST(CpuQuota, Version1) {
  EXPECT_EQ(detail::cores_of_cfs("-1\n", "100000\n"), std::nullopt);
  EXPECT_EQ(detail::cores_of_cfs("400000\n", "100000\n"), 4);
  EXPECT_EQ(detail::cores_of_cfs("1000\n", "100000\n"), 1);
  EXPECT_EQ(detail::cores_of_cfs("x", "100000\n"), std::nullopt);
}

TEST(CpuQuota, GroupOfTheProcess) {
  const char* text = "9:cpu,cpuacct:/docker/abc\n2:cpuset:/\n0::/user.slice/app:1\n";
  EXPECT_EQ(detail::cgroup_path(text, "cpu"), "/docker/abc");
  EXPECT_EQ(detail::cgroup_path(text, "cpuacct"), "/docker/abc");
  EXPECT_EQ(detail::cgroup_path(text, ""), "/user.slice/app:1");
  EXPECT_EQ(detail::cgroup_path(text, "memory"), std::nullopt);
  EXPECT_EQ(detail::cgroup_path("junk\n\n::", "cpu"), std::nullopt);
}

TEST(CpuQuota, TightestOfTheGroupAndItsParents) {
  namespace fs = std::filesystem;
  fs::path root = fs::path(temporary_path("cgroup"));
  fs::remove_all(root);
  auto write = [&](const std::string& path, const std::string& text) {
    fs::create_directories((root / path).parent_path());
    std::ofstream(root / path) << text;
  };
  EXPECT_EQ(detail::cgroup_cores(root.string()), std::nullopt);
  write("proc/self/cgroup", "0::/slice/app\n");
  EXPECT_EQ(detail::cgroup_cores(root.string()), std::nullopt);
  write("sys/fs/cgroup/slice/app/cpu.max", "max 100000\n");
  EXPECT_EQ(detail::cgroup_cores(root.string()), std::nullopt);
  write("sys/fs/cgroup/slice/cpu.max", "650000 100000\n");
  EXPECT_EQ(detail::cgroup_cores(root.string()), 6);
  write("proc/self/cgroup", "4:cpu:/box\n0::/slice/app\n");
  write("sys/fs/cgroup/cpu/box/cpu.cfs_quota_us", "300000\n");
  write("sys/fs/cgroup/cpu/box/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(detail::cgroup_cores(root.string()), 3);
  fs::remove_all(root);
}

}  // namespace
}  // namespace rlx
