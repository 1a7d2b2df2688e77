// Our gemm beside one plain oneDNN matmul call on as many threads, timed in turns in one process, best of each:
// GFLOP/s of both and their ratio. With one thread it takes CPU time, so other processes do not disturb it.
#include <benchmark/benchmark.h>
#include <dlfcn.h>
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <unordered_map>
#include <vector>

#include "backends/cpu/gemm.h"
#include "base/parallel.h"

namespace {

using i64 = std::int64_t;
using rlx::DType;

double now() {
  timespec t{};
  clock_gettime(rlx::num_threads() == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
}

double seconds(const std::function<void()>& f) {
  double start = now();
  f();
  return now() - start;
}

struct Case {
  i64 batch, m, n, k;
};

void run_case(benchmark::State& state, DType type, const std::string& layout, Case s, int threads) {
  rlx::set_num_threads(threads);
  if (auto set = reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"))) set(threads);
  bool a_cols = layout[0] == 'T', b_cols = layout[1] == 'T';
  i64 size = type == DType::F32 ? 4 : type == DType::BF16 ? 2 : 1;
  std::vector<std::byte> a(std::size_t(s.batch * s.m * s.k * size)), b(std::size_t(s.batch * s.n * s.k * size));
  std::vector<float> c(std::size_t(s.batch * s.m * s.n)), d = c;
  rlx::cpu::GemmArgs args{.a_type = type, .b_type = type, .batch = s.batch, .m = s.m, .n = s.n, .k = s.k};
  args.a = a.data(), args.a_row = a_cols ? 1 : s.k, args.a_col = a_cols ? s.m : 1, args.a_batch = s.m * s.k;
  args.b = b.data(), args.b_row = b_cols ? 1 : s.n, args.b_col = b_cols ? s.k : 1, args.b_batch = s.n * s.k;
  args.c = c.data(), args.c_row = s.n, args.c_batch = s.m * s.n;

  using namespace dnnl;
  using dt = memory::data_type;
  static engine cpu(engine::kind::cpu, 0);
  static stream order(cpu);
  dt t = type == DType::F32 ? dt::f32 : type == DType::BF16 ? dt::bf16 : dt::s8;
  memory::desc ad({s.batch, s.m, s.k}, t, memory::dims{s.m * s.k, args.a_row, args.a_col});
  memory::desc bd({s.batch, s.k, s.n}, t, memory::dims{s.n * s.k, args.b_row, args.b_col});
  memory::desc cd({s.batch, s.m, s.n}, type == DType::I8 ? dt::s32 : dt::f32, memory::dims{s.m * s.n, s.n, 1});
  matmul plain(matmul::primitive_desc(matmul::desc(ad, bd, cd), cpu));
  std::unordered_map<int, memory> plain_args{{DNNL_ARG_SRC, memory(ad, cpu, a.data())},
                                             {DNNL_ARG_WEIGHTS, memory(bd, cpu, b.data())},
                                             {DNNL_ARG_DST, memory(cd, cpu, d.data())}};
  double ours = 1e9, theirs = 1e9;
  double flops = 2.0 * double(s.batch) * double(s.m) * double(s.n) * double(s.k);
  int repeat = std::max(1, int(2e6 / flops));
  for (auto _ : state) {
    double time = seconds([&] {
      for (int r = 0; r < repeat; ++r) rlx::cpu::gemm(args);
    });
    ours = std::min(ours, time);
    theirs = std::min(theirs, seconds([&] {
                        for (int r = 0; r < repeat; ++r) plain.execute(order, plain_args);
                      }));
    state.SetIterationTime(time / repeat);
  }
  flops *= repeat * 1e-9;
  state.counters["GFLOPs"] = flops / ours;
  state.counters["plain"] = flops / theirs;
  state.counters["ratio"] = theirs / ours;
}

void add(DType type, const char* layout, Case s) {
  for (int threads : {rlx::default_num_threads(), 1}) {
    std::string name = "gemm/" + std::string(to_string(type)) + "/" + layout;
    for (i64 size : {s.batch, s.m, s.n, s.k}) name += "/" + std::to_string(size);
    name += "/threads:" + std::to_string(threads);
    benchmark::RegisterBenchmark(name.c_str(),
                                 [=](benchmark::State& state) { run_case(state, type, layout, s, threads); })
        ->UseManualTime()
        ->Iterations(20);
  }
}

// Products of a language model of 4 M parameters on 2048 tokens, its attention, and generation.
[[maybe_unused]] const bool registered = [] {
  for (DType type : {DType::F32, DType::BF16, DType::I8}) {
    for (const char* layout : {"NN", "NT"})
      for (i64 k : {256, 768})
        for (i64 n : {256, 768, 2048}) add(type, layout, {1, 2048, n, k});
    for (i64 m : {256, 768})
      for (i64 n : {256, 768}) add(type, "TN", {1, m, n, 2048});
    for (const char* layout : {"NN", "NT", "TN"}) {
      add(type, layout, {32, 256, 64, 256});
      add(type, layout, {32, 256, 256, 64});
    }
    for (const char* layout : {"NN", "NT"})
      for (Case s : {Case{1, 1, 768, 256}, {1, 1, 256, 768}, {1, 1, 2048, 768}, {32, 1, 256, 64}}) add(type, layout, s);
    for (Case s : {Case{1, 16, 768, 768}, {1, 64, 64, 64}, {64, 16, 16, 16}}) add(type, "NN", s);
  }
  return true;
}();

}  // namespace
