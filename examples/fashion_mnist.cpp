// A small CNN on Fashion-MNIST in several precisions: the model is built once, one pass a precision rewrites it, and
// the same loop trains each. Prints a table of accuracy, bytes of weights and step time.
//
//   fashion_mnist [--precision NAME,…] [--epochs N | --seconds N] [--data FOLDER] [--json FILE] [--quick]
//
// --seconds is the time for each precision. The data is Debian's package dataset-fashion-mnist. --quick trains each for
// a moment and fails where one learns too little.
#include <rlx/rlx.h>
#include <rlx/train.h>
#include <zlib.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <random>

using namespace rlx;

namespace {

// ---------------------------------------------------------------------------------------------- data

constexpr std::int64_t kSide = 28, kPixels = kSide * kSide;
constexpr int kClasses = 10;

struct Images {
  std::vector<std::uint8_t> pixels, labels;
  std::int64_t count() const { return std::int64_t(labels.size()); }
};

// An IDX file of bytes: two zeros, the type (8: u8), the rank, big-endian sizes, the values.
std::vector<std::uint8_t> read_idx(const std::string& path, const Extents& item) {
  gzFile file = gzopen(path.c_str(), "rb");
  if (!file) throw DeviceError("cannot read '" + path + "' (Debian's package dataset-fashion-mnist has it)");
  std::vector<std::uint8_t> bytes;
  for (std::uint8_t part[1 << 16]; int n = gzread(file, part, sizeof part);) {
    if (n < 0) throw UserError("'" + path + "' is no gzip file");
    bytes.insert(bytes.end(), part, part + n);
  }
  gzclose(file);
  std::size_t rank = item.size() + 1, header = 4 + 4 * rank;
  auto size = [&](std::size_t axis) {
    std::int64_t out = 0;
    for (std::size_t i = 0; i < 4; ++i) out = out << 8 | bytes[4 + 4 * axis + i];
    return out;
  };
  bool good = bytes.size() >= header && bytes[0] == 0 && bytes[1] == 0 && bytes[2] == 8 && bytes[3] == rank;
  for (std::size_t i = 0; good && i < item.size(); ++i) good = size(i + 1) == item[i];
  if (!good || std::int64_t(bytes.size() - header) != size(0) * count(item))
    throw UserError("'" + path + "' is no IDX file of such items");
  return {bytes.begin() + std::ptrdiff_t(header), bytes.end()};
}

Images load_images(const std::string& folder, const std::string& name) {
  Images out{read_idx(folder + "/" + name + "-images-idx3-ubyte.gz", {kSide, kSide}),
             read_idx(folder + "/" + name + "-labels-idx1-ubyte.gz", {})};
  if (std::int64_t(out.pixels.size()) != out.count() * kPixels)
    throw UserError(folder + ": as many " + name + " images as labels were expected");
  return out;
}

// Images [from, to) of `order` as the graph's inputs; a mirrored shoe is a shoe, so half of the training images are.
ArrayMap batch_of(const Images& images, std::span<const int> order, std::mt19937* mirror) {
  auto n = std::int64_t(order.size());
  Array x(DType::F32, {n, kSide, kSide, 1}), y(DType::I32, {n});
  auto to = x.values<float>();
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint8_t* from = images.pixels.data() + std::int64_t(order[std::size_t(i)]) * kPixels;
    bool flip = mirror && (*mirror)() % 2;
    for (std::int64_t p = 0; p < kPixels; ++p) {
      std::int64_t column = p % kSide, source = flip ? p - column + kSide - 1 - column : p;
      to[std::size_t(i * kPixels + p)] = (float(from[source]) - 73) / 90;  // mean and deviation of the training set
    }
    y.values<std::int32_t>()[std::size_t(i)] = images.labels[std::size_t(order[std::size_t(i)])];
  }
  return {{"images", x}, {"labels", y}};
}

// ---------------------------------------------------------------------------------------------- model

// The 3 × 3 neighbourhoods of x [batch, height, width, channels] side by side: [batch, height, width, 9 · channels].
Node patches(Node x) {
  Dim batch = x.dim(0), height = x.dim(1), width = x.dim(2), channels = x.dim(3);
  Node padded = pad(x, {0, 1, 1, 0}, {0, 1, 1, 0});
  Nodes parts;
  for (int row = 0; row < 3; ++row)
    for (int column = 0; column < 3; ++column)
      parts.push_back(slice(padded, {0, row, column, 0}, {batch, height, width, channels}, {1, 1, 1, 1}));
  return concat(parts, -1);
}

// The largest of each 2 × 2 window.
Node pooled(Node x) {
  auto corner = [&](int row, int column) {
    return slice(x, {0, row, column, 0}, {x.dim(0), floor_div(x.dim(1), 2), floor_div(x.dim(2), 2), x.dim(3)},
                 {1, 2, 2, 1});
  };
  return maximum(maximum(corner(0, 0), corner(0, 1)), maximum(corner(1, 0), corner(1, 1)));
}

Node layer(Node x, const std::string& name, std::int64_t out) {
  Graph graph = x.graph();
  Node w = graph.param(name + ".weight", DType::F32, {x.dim(-1), out});
  return (matmul(x, w) + graph.param(name + ".bias", DType::F32, {out})).named(name);
}

// Outputs: the mean loss, and the logits. Convolutions are matmuls over patches, which every precision's pass rewrites.
Graph build_model() {
  Graph graph;
  Dim batch = Dim::symbol("batch");
  Node images = graph.input("images", DType::F32, {batch, kSide, kSide, 1});
  Node labels = graph.input("labels", DType::I32, {batch});
  Node x = transpose(reshape(images, {batch, 14, 2, 14, 2}), {0, 1, 3, 2, 4});
  x = reshape(x, {batch, 14, 14, 4});  // 2 × 2 pixels as channels
  x = relu(layer(patches(x), "conv1", 16));
  x = pooled(relu(layer(patches(x), "conv2", 32)));
  x = relu(layer(reshape(x, {batch, 7 * 7 * 32}), "hidden", 128));
  Node logits = layer(x, "out", kClasses);
  graph.set_outputs({cross_entropy(logits, labels), logits});
  return graph;
}

// The first and the last layer stay f32 in all low precisions, as is usual: they are small and matter most.
const std::vector<std::string> kHidden = {"conv2.weight", "hidden.weight"}, kKept = {"conv1.weight", "out.weight"};

struct Model {
  Graph graph;
  Tensors params;
};

// Deviations of √(2 / inputs) for weights (He and others, 2015), zeros for biases.
Tensors initial_params(const Graph& graph) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  Tensors out;
  for (Node p : graph.params()) {
    Array value(DType::F32, to_extents(p.shape()));
    if (p.rank() == 2)
      for (float& v : value.values<float>()) v = normal(random) * std::sqrt(2.f / float(value.shape()[0]));
    out.emplace(p.name(), value);
  }
  return out;
}

// ---------------------------------------------------------------------------------------------- precisions

struct Precision {
  const char* name;
  const char* weights;               // what the low weights are
  std::function<Model(Model)> pass;  // rewrites the dense model
  double bits;                       // a low weight
  double constant = 0;               // bytes of scales or entries a low tensor
  bool all = false;                  // all weight matrices are low, not only the hidden ones
  bool late = false;                 // the first half of the training is dense
};

Model to_bf16(Model m) {
  return {auto_mixed_precision(m.graph, {.policy = PrecisionPolicy::AutoMixed, .dtype = DType::BF16}).graph, m.params};
}

Model to_bitnet(Model m) {
  BitNetConfig config;
  config.keep_full_precision = kKept;
  return {inject_bitnet_qat(m.graph, config).graph, m.params};
}

Model to_scaled(Model m, ScaledMatmulConfig config) {
  config.keep_full_precision = kKept;
  return {insert_scaled_matmul(m.graph, config).graph, m.params};
}

// Indices cannot be trained, so they come from trained weights.
constexpr std::int64_t kEntryDim = 2, kEntries = 256;
Model to_codebooks(Model m) {
  CodebookConfig config{.entry_dim = kEntryDim, .num_entries = kEntries};
  config.weights = kHidden;
  CodebookResult result = insert_codebooks(m.graph, config);
  Tensors params = codebook_params(m.params, result.report);
  for (Node p : result.graph.params())
    if (m.params.contains(p.name())) params.emplace(p.name(), m.params.at(p.name()));
  return {result.graph, params};
}

const std::vector<Precision>& precisions() {
  static const std::vector<Precision> rows = {
      {"f32", "f32", [](Model m) { return m; }, 32},
      {"bf16", "bf16", to_bf16, 16, 0, true},
      {"bitnet", "ternary, 2 bits", to_bitnet, 2, 4},
      {"fp8", "E4M3", [](Model m) { return to_scaled(m, ScaledMatmulConfig::fp8_e4m3()); }, 8, 4},
      {"mxfp4", "E2M1, 32 a scale", [](Model m) { return to_scaled(m, ScaledMatmulConfig::mxfp4()); }, 4 + 8 / 32.0},
      {"codebook", "an index for each 2", to_codebooks, 8.0 / kEntryDim, 4.0 * kEntryDim * kEntries, false, true},
  };
  return rows;
}

// ---------------------------------------------------------------------------------------------- training

struct Options {
  std::vector<std::string> names;
  double epochs = 4, seconds = 0;
  std::string data = "/usr/share/datasets/fashion-mnist", json;
  bool quick = false;
  std::int64_t batch = 128;
};

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// One compiled program that takes a step: Muon for the hidden weight matrices, AdamW for the rest.
class Trainer {
 public:
  explicit Trainer(const Model& model) : program_(compile(model)) {
    for (auto& [name, value] : model.params) program_.set_param(name, value);
    for (auto& [name, value] : states_) program_.set_param(name, value);
    for (auto& [name, value] : model.params) names_.push_back(name);
  }
  // `progress` through the whole training, 0 to 1: the learning rates warm up, then fall to 0.
  double step(ArrayMap batch, double progress) {
    double rate = std::min({1.0, double(++count_) / 50, 1 - progress});
    auto scalar = [](double v) { return Array::scalar(v, DType::F32); };
    batch["learning_rate"] = scalar(rate * 0.003), batch["muon_learning_rate"] = scalar(rate * 0.02);
    batch["step"] = scalar(double(count_));
    return program_.run_read_outputs(batch, {0})[0].at(0);
  }
  Tensors params() const {
    Tensors out;
    for (auto& name : names_) out.emplace(name, program_.param(name));
    return out;
  }

 private:
  CompiledGraph compile(const Model& model) {
    Graph graph = Graph::parse(model.graph.text());  // its own copy
    auto scalar = [&](const char* name) { return graph.input(name, DType::F32, {}); };
    StepNodes adamw{scalar("learning_rate"), graph.constant(0, DType::F32), scalar("step")}, muon = adamw;
    muon.learning_rate = scalar("muon_learning_rate");
    Nodes trained, outputs{graph.outputs()[0]};
    for (Node p : graph.params())
      if (p.dtype() == DType::F32) trained.push_back(p);
    Nodes gradients = grad(outputs[0], trained);
    std::vector<Update> updates;
    auto carry = [&](Node param, Node next) {
      updates.push_back({param.name(), int(outputs.size())});
      outputs.push_back(next);
    };
    for (std::size_t i = 0; i < trained.size(); ++i) {
      std::vector<StateNode> states;
      bool is_hidden = std::find(kHidden.begin(), kHidden.end(), trained[i].name()) != kHidden.end();
      carry(trained[i], is_hidden ? muon_update({.out_axis = 1}, trained[i], gradients[i], muon, states)
                                  : adamw_update({}, trained[i], gradients[i], adamw, states));
      for (auto& s : states) {
        carry(s.param, s.next);
        states_.emplace(s.param.name(), Array(s.param.dtype(), to_extents(s.param.shape())));
      }
    }
    graph.set_outputs(outputs);
    return Session(Device::cpu()).compile(graph, {.name = "step", .updates = updates});
  }

  Tensors states_;
  CompiledGraph program_;
  std::vector<std::string> names_;
  int count_ = 0;
};

// The share of test images that are classed right.
double accuracy(const Model& model, const Images& test, std::int64_t limit) {
  CompiledGraph program = Session(Device::cpu()).compile(model.graph, {.name = "test"});
  for (auto& [name, value] : model.params) program.set_param(name, value);
  constexpr std::int64_t kBatch = 500;
  std::vector<int> order(kBatch);
  std::int64_t right = 0, count = std::min(test.count(), limit) / kBatch * kBatch;
  for (std::int64_t first = 0; first < count; first += kBatch) {
    for (std::int64_t i = 0; i < kBatch; ++i) order[std::size_t(i)] = int(first + i);
    Array logits = program.run_read_outputs(batch_of(test, order, nullptr), {1})[0];
    const float* row = logits.values<float>().data();
    for (std::int64_t i = 0; i < kBatch; ++i, row += kClasses)
      right += std::max_element(row, row + kClasses) - row == test.labels[std::size_t(first + i)];
  }
  return double(right) / double(count);
}

struct Outcome {
  const Precision* precision;
  double accuracy, seconds, step_seconds;  // the median step
  std::int64_t steps, low_weights;
  double bytes;  // of all params as a file would hold them
};

void count_weights(Outcome& out, const Graph& dense) {
  for (Node p : dense.params()) {
    bool is_low =
        p.rank() == 2 && (out.precision->all || std::find(kHidden.begin(), kHidden.end(), p.name()) != kHidden.end());
    auto n = count(to_extents(p.shape()));
    out.low_weights += is_low && out.precision->bits < 32 ? n : 0;
    out.bytes += is_low ? double(n) * out.precision->bits / 8 + out.precision->constant : 4 * double(n);
  }
}

Outcome run(const Precision& precision, const Graph& dense, const Options& o, const Images& train, const Images& test) {
  Model model{dense, initial_params(dense)};
  if (!precision.late) model = precision.pass(model);
  auto trainer = std::make_unique<Trainer>(model);
  bool is_late = precision.late;
  std::mt19937 random(1);
  std::vector<int> order(std::size_t(train.count()));
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = int(i);
  std::int64_t a_round = train.count() / o.batch,
               total = std::max<std::int64_t>(1, std::int64_t(o.epochs * double(a_round)));
  std::vector<double> times;
  auto begin = Clock::now(), shown = begin;
  double mean = 0;
  Outcome out{&precision, 0, 0, 0, 0, 0, 0};
  auto progress = [&] { return o.seconds > 0 ? seconds_since(begin) / o.seconds : double(out.steps) / double(total); };
  for (; progress() < 1; ++out.steps) {
    if (is_late && progress() >= 0.5) {
      is_late = false;
      model.params = trainer->params();
      model = precision.pass(model);
      trainer = std::make_unique<Trainer>(model);
      times.clear();
    }
    auto at = std::size_t(out.steps % a_round * o.batch);
    if (at == 0) std::shuffle(order.begin(), order.end(), random);
    ArrayMap batch = batch_of(train, std::span(order).subspan(at, std::size_t(o.batch)), &random);
    auto start = Clock::now();
    double loss = trainer->step(std::move(batch), progress());
    times.push_back(seconds_since(start));
    mean = out.steps ? mean + 0.02 * (loss - mean) : loss;
    if (seconds_since(shown) > 5) {
      std::fprintf(stderr, "%s: step %lld, %.0f %%, loss %.3f, %.0f s\n", precision.name, (long long)out.steps,
                   100 * progress(), mean, seconds_since(begin));
      shown = Clock::now();
    }
  }
  out.seconds = seconds_since(begin);
  std::nth_element(times.begin(), times.begin() + std::ptrdiff_t(times.size() / 2), times.end());
  out.step_seconds = times[times.size() / 2];
  model.params = trainer->params();
  out.accuracy = accuracy(model, test, o.quick ? 1000 : test.count());
  count_weights(out, dense);
  return out;
}

// ---------------------------------------------------------------------------------------------- the table

void print(const std::vector<Outcome>& rows) {
  std::printf("%-10s %-22s %9s %12s %12s %8s %12s\n", "precision", "low weights", "accuracy", "low weights", "bytes",
              "seconds", "step / f32");
  double f32 = 0;
  for (auto& r : rows)
    if (std::strcmp(r.precision->name, "f32") == 0) f32 = r.step_seconds;
  for (auto& r : rows) {
    std::printf("%-10s %-22s %7.2f %% %12lld %12.0f %8.0f", r.precision->name, r.precision->weights, 100 * r.accuracy,
                (long long)r.low_weights, r.bytes, r.seconds);
    f32 > 0 ? std::printf(" %12.2f\n", r.step_seconds / f32) : std::printf(" %12s\n", "");
  }
}

void write_json(const std::string& path, const std::vector<Outcome>& rows) {
  std::ofstream file(path);
  file << "[";
  for (auto& r : rows)
    file << (&r == rows.data() ? "" : ",") << "\n  {\"precision\": \"" << r.precision->name
         << "\", \"accuracy\": " << r.accuracy << ", \"steps\": " << r.steps << ", \"low_weights\": " << r.low_weights
         << ", \"bytes\": " << r.bytes << ", \"seconds\": " << r.seconds << ", \"step_seconds\": " << r.step_seconds
         << "}";
  file << "\n]\n";
  if (!file.flush()) throw DeviceError("cannot write '" + path + "'");
}

Options parse(int argc, char** argv) {
  Options o;
  for (auto& p : precisions()) o.names.emplace_back(p.name);
  for (int i = 1; i < argc; ++i) {
    std::string flag = argv[i];
    if (flag == "--quick") {
      o.quick = true, o.epochs = 0.1, o.batch = 64;
      continue;
    }
    if (i + 1 == argc) throw UserError("got " + flag + ", expected it to have a value");
    std::string value = argv[++i];
    if (flag == "--precision") {
      o.names.clear();
      for (std::size_t at = 0, end; at <= value.size(); at = end + 1) {
        end = std::min(value.find(',', at), value.size());
        o.names.push_back(value.substr(at, end - at));
      }
    } else if (flag == "--epochs") {
      o.epochs = std::stod(value);
    } else if (flag == "--seconds") {
      o.seconds = std::stod(value);
    } else if (flag == "--data") {
      o.data = value;
    } else if (flag == "--json") {
      o.json = value;
    } else {
      throw UserError("unknown option " + flag);
    }
  }
  return o;
}

const Precision& precision_of(const std::string& name) {
  std::string all;
  for (auto& p : precisions()) {
    if (name == p.name) return p;
    all += std::string(all.empty() ? "" : ", ") + p.name;
  }
  throw UserError("got precision " + name + ", expected one of " + all);
}

}  // namespace

int main(int argc, char** argv) try {
  Options options = parse(argc, argv);
  std::vector<const Precision*> chosen;
  for (auto& name : options.names) chosen.push_back(&precision_of(name));
  Images train = load_images(options.data, "train"), test = load_images(options.data, "t10k");
  Graph dense = build_model();
  std::vector<Outcome> rows;
  for (auto* p : chosen) rows.push_back(run(*p, dense, options, train, test));
  print(rows);
  if (!options.json.empty()) write_json(options.json, rows);
  constexpr double kQuickAccuracy = 0.6;
  for (auto& r : rows)
    if (options.quick && !(r.accuracy > kQuickAccuracy)) {
      std::fprintf(stderr, "fashion_mnist: %s learned too little\n", r.precision->name);
      return 1;
    }
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "fashion_mnist: error: %s\n", error.what());
  return 2;
}
