// Requests that begin alike share what they have in common; nobody's bits tell.
#include <algorithm>
#include <catch2/catch.hpp>

#include "tensor/engine_schedule.h"
#include "tests/tensor/engine_fixture.h"

namespace motley {
namespace {

using namespace test;

EngineLimits limits_of(int64_t slots, int64_t page_size, int64_t prefill_rows, bool share = true) {
  EngineLimits limits;
  limits.max_sequences = slots;
  limits.page_size = page_size;
  limits.max_prefill_rows = prefill_rows;
  limits.share_prefixes = share;
  return limits;
}

/// `count` samples of one prompt, ids from `first` on.
std::vector<GenerateRequest> samples_of(uint64_t first, size_t count, int64_t prompt, int64_t max_new,
                                        int64_t vocabulary, kernels::SamplingRule rule = {}) {
  std::vector<GenerateRequest> requests;
  for (uint64_t i = 0; i < count; ++i) {
    requests.push_back(make_request(first, prompt, max_new, vocabulary, rule));
    requests.back().id = first + i;
    requests.back().key.session = first + i;
  }
  return requests;
}

/// Groups of samples, prompts that begin like others, and one that is another's continuation.
std::vector<GenerateRequest> mixed_requests(int64_t vocabulary) {
  std::vector<GenerateRequest> requests;
  uint64_t id = 1;
  for (const int64_t prompt : {1, 5, 16, 17, 40}) {
    for (GenerateRequest& request : samples_of(id, 3, prompt, 12, vocabulary, {0.9, 0.95, 0}))
      requests.push_back(request);
    id += 3;
  }
  const std::vector<int32_t> longest = requests.back().tokens;
  for (const size_t common : {3, 16, 31, 39, 40}) {
    GenerateRequest request = make_request(id++, 9, 12, vocabulary, {});
    request.tokens.insert(request.tokens.begin(), longest.begin(), longest.begin() + static_cast<ptrdiff_t>(common));
    requests.push_back(request);
  }
  return requests;
}

TEST_CASE("sharing changes no bit, whatever the format, pages and schedule", "[engine][device]") {
  const Device device = every_device();
  INFO(kernels::device_name(device));
  const auto format = GENERATE(kernels::Format::fp32, kernels::Format::bf16, kernels::Format::fp16,
                               kernels::Format::e4m3, kernels::Format::e5m2);
  kernels::NumericProfile profile = plain_profile("bf16");
  if (sized(device, false, format != kernels::Format::bf16 && format != kernels::Format::e4m3)) return;
  if (format == kernels::Format::fp32) profile = plain_profile("fp32");
  profile.kv_cache = format;
  profile.kv_scale = format == kernels::Format::e4m3 || format == kernels::Format::e5m2 ? 0.125 : 1.0;
  const Model model = make_model(sized(device, even_normed(), smallest()), 81);
  const auto weights = sampler_weights(model, profile, 1, device);
  const auto requests = sized(device, mixed_requests(model.config.vocabulary), three_requests({0.9, 0.95, 0}));
  const auto expected = generate(weights, limits_of(30, 16, 4096, false), requests);
  using Sizes = std::vector<int64_t>;
  for (const int64_t page_size : sized(device, Sizes{1, 4, 16, 64}, Sizes{4})) {
    for (const int64_t prefill_rows : sized(device, Sizes{1, 7, 4096}, Sizes{3})) {
      for (const int64_t slots : sized(device, Sizes{2, 30}, Sizes{2})) {
        INFO("page " << page_size << ", prefill " << prefill_rows << ", slots " << slots);
        Engine engine(weights, limits_of(slots, page_size, prefill_rows));
        for (const GenerateRequest& request : requests) engine.submit(request);
        std::map<uint64_t, Finished> finished;
        while (!engine.idle()) {
          collect(engine.step(), finished);
          engine.check_pages();
        }
        CHECK(finished == expected);
        CHECK(engine.stats().shared_rows > 0);
        CHECK(engine.stats().held_pages == 0);
      }
    }
  }
}

TEST_CASE("the samples of one prompt compute it once", "[engine]") {
  const Model model = make_model(grouped_tied(), 82);
  const auto weights = sampler_weights(model, plain_profile("bf16"));
  const int64_t vocabulary = model.config.vocabulary;
  for (const int64_t prompt : {1, 5, 16, 23, 48}) {
    INFO("prompt " << prompt);
    const auto group = samples_of(1, 8, prompt, 5, vocabulary);
    Engine together(weights, limits_of(8, 16, 4096));
    for (const GenerateRequest& request : group) together.submit(request);
    CHECK(together.step().size() == 8);
    CHECK(together.stats().prefill_rows == prompt);
    CHECK(together.stats().shared_rows == 7 * prompt);
    const int64_t whole_pages = prompt / 16, partial = prompt % 16 > 0;
    CHECK(together.stats().held_pages == whole_pages + 8 * partial);
    const auto expected = generate(weights, limits_of(8, 16, 4096, false), group);

    // One after the other, while the first goes on: each computes its last row alone.
    Engine trickled(weights, limits_of(8, 16, 4096));
    std::map<uint64_t, Finished> finished;
    for (const GenerateRequest& request : group) {
      trickled.submit(request);
      collect(trickled.step(), finished);
    }
    CHECK(trickled.stats().prefill_rows == prompt + 7);
    CHECK(trickled.stats().shared_rows == 7 * (prompt - 1));
    while (!trickled.idle()) collect(trickled.step(), finished);
    CHECK(finished == expected);
  }
  // In a step in which two groups and a prompt with their common beginning come together.
  Engine engine(weights, limits_of(20, 4, 4096));
  auto requests = samples_of(1, 3, 18, 4, vocabulary);
  for (GenerateRequest& request : samples_of(11, 3, 18, 4, vocabulary)) {
    std::copy_n(requests[0].tokens.begin(), 9, request.tokens.begin());
    request.tokens[9] = (requests[0].tokens[9] + 1) % static_cast<int32_t>(vocabulary);
    requests.push_back(request);
  }
  for (const GenerateRequest& request : requests) engine.submit(request);
  auto finished = drain(engine);
  CHECK(engine.stats().prefill_rows == 18 + 10);  // two pages of four are common
  CHECK(finished == generate(weights, limits_of(20, 4, 4096, false), requests));
}

TEST_CASE("a session's next turn finds what the last one computed", "[engine]") {
  const Model model = make_model(odd_untied(), 83);
  const auto weights = sampler_weights(model, plain_profile("bf16"));
  const int64_t vocabulary = model.config.vocabulary;
  Engine engine(weights, limits_of(2, 16, 4096));
  GenerateRequest turn = make_request(1, 21, 30, vocabulary, {});
  int64_t computed = 0;
  for (uint64_t i = 1; i <= 3; ++i) {
    turn.id = i;
    engine.submit(turn);
    const Finished f = drain(engine).at(i);
    CHECK(f == generate(weights, limits_of(2, 16, 4096, false), {turn}).at(i));
    const int64_t known = i == 1 ? 0 : static_cast<int64_t>(turn.tokens.size()) - 4;
    CHECK(engine.stats().prefill_rows - computed == static_cast<int64_t>(turn.tokens.size()) - known);
    computed = engine.stats().prefill_rows;
    turn.tokens = whole(turn, f.records);  // the last token drawn has not been computed
    for (int32_t observed : {1, 2, 3}) turn.tokens.push_back(observed);
  }
  engine.check_pages();
}

TEST_CASE("what other weights computed is never taken over", "[engine]") {
  const auto profile = plain_profile("bf16");
  const Model model = make_model(grouped_tied(), 84);
  const auto old_weights = sampler_weights(model, profile, 1);
  const auto new_weights = sampler_weights(make_model(grouped_tied(), 85), profile, 2);
  const auto group = samples_of(1, 6, 37, 20, model.config.vocabulary);
  const auto expected = generate(new_weights, limits_of(6, 4, 4096, false), group);
  Engine engine(old_weights, limits_of(8, 4, 16));
  engine.submit(group[0]);
  for (int i = 0; i < 5; ++i) engine.step();
  engine.submit(group[1]);  // two chunks of its prompt are the old weights': it waits no longer
  engine.step();
  engine.set_weights(new_weights);
  CHECK(engine.stats().cached_pages == 0);
  for (size_t i = 2; i < 6; ++i) engine.submit(group[i]);
  const auto finished = drain(engine);
  engine.check_pages();
  for (uint64_t id = 3; id <= 6; ++id) CHECK(finished.at(id) == expected.at(id));
  CHECK(finished.at(1).records.versions.back() == 2);

  // The same numbers under another version serve on.
  const int64_t before = engine.stats().prefill_rows;
  engine.set_weights(sampler_weights(make_model(grouped_tied(), 85), profile, 3));
  GenerateRequest again = group[2];
  again.id = 99;
  engine.submit(again);
  CHECK(drain(engine).at(99).records.log_q == expected.at(3).records.log_q);
  CHECK(engine.stats().prefill_rows == before + 1);
}

TEST_CASE("a long prompt comes in pieces while the others decode", "[engine]") {
  const Model model = make_model(grouped_tied(), 86);
  const auto weights = sampler_weights(model, plain_profile("bf16"));
  Engine engine(weights, limits_of(4, 16, 20));
  GenerateRequest early = make_request(1, 3, 30, model.config.vocabulary, {});
  GenerateRequest late = make_request(2, 90, 5, model.config.vocabulary, {});
  GenerateRequest last = make_request(3, 30, 5, model.config.vocabulary, {});
  std::map<uint64_t, Finished> finished;
  engine.submit(early);
  collect(engine.step(), finished);
  engine.submit(late);
  engine.submit(last);
  for (int step = 1; step <= 6; ++step) {
    const auto outputs = engine.step();
    collect(outputs, finished);
    // 90 rows take five steps of 20; what the fifth leaves is the next prompt's.
    CHECK(outputs.size() == (step == 5 ? 2 : step == 6 ? 3 : 1));
    CHECK(outputs[0].id == 1);
    CHECK(engine.stats().prefill_rows == 3 + std::min(20 * step, 120));
  }
  while (!engine.idle()) collect(engine.step(), finished);
  CHECK(finished == generate(weights, limits_of(4, 16, 4096, false), {early, late, last}));
}

TEST_CASE("a page that everybody shares outlives its first owner, and gives way when pages are wanted", "[engine]") {
  const Model model = make_model(grouped_tied(), 87);
  const auto weights = sampler_weights(model, plain_profile("bf16"));
  const int64_t vocabulary = model.config.vocabulary;
  EngineLimits limits = limits_of(2, 4, 4096);
  Engine engine(weights, limits);  // 80 pages
  for (uint64_t id = 1; id <= 12; ++id) {
    const GenerateRequest request = make_request(id, 120, 10, vocabulary, {});
    engine.submit(request);
    CHECK(drain(engine).at(id) == generate(weights, limits_of(1, 4, 4096, false), {request}).at(id));
    engine.check_pages();
  }
  CHECK(engine.stats().evicted_pages > 0);
  CHECK(engine.stats().allocated_pages == 80);
  // The last one is still there, the first one is not.
  for (const uint64_t id : {12, 1}) {
    const int64_t before = engine.stats().prefill_rows;
    engine.submit(make_request(id, 120, 1, vocabulary, {}));
    drain(engine);
    CHECK(engine.stats().prefill_rows - before == (id == 12 ? 1 : 120));
  }

  limits.max_cached_bytes = 0;
  Engine forgetful(weights, limits);
  for (const GenerateRequest& request : samples_of(1, 4, 30, 3, vocabulary)) forgetful.submit(request);
  drain(forgetful);
  CHECK(forgetful.stats().cached_pages == 0);
  limits.max_cached_bytes = -1;
  CHECK_THROWS_AS(Engine(weights, limits), std::invalid_argument);
  limits = limits_of(2, 4, 0);
  CHECK_THROWS_AS(Engine(weights, limits), std::invalid_argument);
}

TEST_CASE("a pass that does not end leaves nothing behind that was not computed", "[engine]") {
  const TransformerConfig config = grouped_tied().resolved();
  Schedule schedule(config, plain_profile("bf16"), limits_of(8, 4, 12));
  for (const GenerateRequest& request : samples_of(1, 3, 10, 5, config.vocabulary)) {
    Sequence sequence;
    sequence.cache.tokens = request.tokens;
    sequence.prompt = 10;
    schedule.submit(std::move(sequence));
  }
  schedule.plan();
  REQUIRE(schedule.rows().size() == 10);
  REQUIRE(schedule.running.size() == 3);
  schedule.restart();
  schedule.check_pages();
  CHECK(schedule.stats().held_pages == 0);
  CHECK(schedule.stats().cached_pages == 0);
  // Nobody takes over what the lost pass was to compute: one prompt is computed, and the others on what it leaves,
  // twelve rows at a time: two rows of the second after its whole pages in the same step, the last one of the third.
  size_t rows = 0;
  for (int step = 0; step < 3; ++step) {
    schedule.plan();
    rows += schedule.rows().size();
    schedule.computed();
    schedule.check_pages();
  }
  CHECK(rows == 10 + 2 + 1);
  for (Sequence& sequence : schedule.running) {
    CHECK(sequence.cache.cached == 10);
    schedule.leave(sequence);
  }
  schedule.running.clear();
  schedule.check_pages();
}

TEST_CASE("a cache whose every page is somebody's beginning still takes a request", "[engine]") {
  const Model model = make_model(grouped_tied(), 90);
  const auto weights = sampler_weights(model, plain_profile("bf16"));
  // One slot, and a request that fills all its pages: the next one begins alike and ends within the last page.
  const EngineLimits limits = limits_of(1, 64, 4096);  // three pages for 160 positions
  GenerateRequest request = make_request(1, 150, 10, model.config.vocabulary, {});
  Engine engine(weights, limits);
  for (uint64_t id = 1; id <= 3; ++id) {
    request.id = id;
    engine.submit(request);
    CHECK(drain(engine).at(id) == generate(weights, limits_of(1, 64, 4096, false), {request}).at(id));
    engine.check_pages();
    CHECK(engine.stats().held_pages == 0);
  }
  CHECK(engine.stats().allocated_pages == 3);
}

TEST_CASE("random sequences of calls leave the pages in order and the bits alone", "[engine]") {
  const auto profile = plain_profile("bf16");
  const Model model = make_model(grouped_tied(), 88);
  const std::shared_ptr<const SamplerWeights> versions[] = {
      sampler_weights(model, profile, 1), sampler_weights(make_model(grouped_tied(), 89), profile, 2)};
  const int64_t vocabulary = model.config.vocabulary;
  for (uint64_t seed = 0; seed < 12; ++seed) {
    INFO("seed " << seed);
    kernels::RandomStream random({seed, kernels::Purpose::data, 4242});
    const auto below = [&](uint64_t bound) { return static_cast<int64_t>(random.below(bound)); };
    EngineLimits limits = limits_of(1 + below(4), int64_t{1} << below(5), 1 + below(60));
    limits.max_cached_bytes = below(3) == 0 ? 4096 : limits.max_cached_bytes;
    const bool swaps = seed % 3 == 2;
    Engine engine(versions[0], limits);
    std::map<uint64_t, GenerateRequest> live;
    std::map<uint64_t, Finished> finished;
    std::vector<std::vector<int32_t>> known;
    uint64_t next_id = 1;
    for (int call = 0; call < 160; ++call) {
      const int64_t kind = below(10);
      if (kind < 3) {
        GenerateRequest request = make_request(next_id, 1 + below(50), 1 + below(12), vocabulary, {});
        if (!known.empty() && below(3) > 0) {
          const auto& model_tokens = known[static_cast<size_t>(below(known.size()))];
          const auto common = static_cast<ptrdiff_t>(1 + below(model_tokens.size()));
          if (below(2) == 0) request.tokens.resize(static_cast<size_t>(below(5)));
          request.tokens.insert(request.tokens.begin(), model_tokens.begin(), model_tokens.begin() + common);
        }
        known.push_back(request.tokens);
        if (known.back().size() > 80) known.pop_back();
        engine.submit(request);
        live[next_id++] = request;
      } else if (kind == 3 && !live.empty()) {
        const auto victim = std::next(live.begin(), below(live.size()));
        engine.cancel(victim->first);
        finished.erase(victim->first);
        live.erase(victim);
      } else if (kind == 4 && swaps) {
        engine.set_weights(versions[below(2)]);
      } else {
        const auto outputs = engine.step();
        collect(outputs, finished);
        for (const StepOutput& output : outputs) {
          if (output.finish == FinishReason::none) continue;
          const GenerateRequest& request = live.at(output.id);
          known.push_back(whole(request, finished.at(output.id).records));
          // Swaps make an answer depend on the step that it falls in; without them it must be what it is alone.
          if (!swaps)
            REQUIRE(finished.at(output.id) ==
                    generate(versions[0], limits_of(1, 16, 4096, false), {request}).at(output.id));
          live.erase(output.id);
        }
      }
      engine.check_pages();
    }
    while (!engine.idle()) engine.step();
    engine.check_pages();
    const EngineStats stats = engine.stats();
    CHECK(stats.held_pages == 0);
    CHECK(stats.cached_pages <= stats.allocated_pages);
    CHECK(stats.shared_rows > 0);
  }
}

}  // namespace
}  // namespace motley
