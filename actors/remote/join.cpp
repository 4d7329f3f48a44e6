#include "actors/remote/join.h"

#include <unistd.h>

#include <algorithm>
#include <thread>

#include "actors/messages.h"
#include "actors/remote/hub.h"
#include "actors/remote/membership.h"
#include "actors/system.h"
#include "actors/version.h"
#include "tensor/config_json.h"

namespace motley::actors {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kConnectLimit{5}, kHelloLimit{10};
constexpr std::chrono::milliseconds kPoll{20}, kFirstPause{250}, kLongestPause{4000};
constexpr std::chrono::seconds kLeaveLimit{30};  // for the step that is under way
constexpr std::chrono::seconds kFarewellLimit{3};
constexpr int kMostFailures = 3;  // in a row, of the engine

std::string own_name() {
  char host[256] = {};
  if (gethostname(host, sizeof(host) - 1) != 0) host[0] = '\0';
  return std::string(host[0] == '\0' ? "unknown" : host) + ":" + std::to_string(getpid());
}

/// Why one stay, or one try to begin one, ended.
struct Ending {
  enum class Kind : uint8_t { over, left, interrupted, unreachable, lost, failed } kind = Kind::lost;
  std::string cause{};
  bool served = false;
};

class Joiner {
 public:
  Joiner(const JoinRequest& request, const std::function<void(const std::string&)>& say, StopRequest& stop)
      : request_(request),
        say_(say),
        stop_(stop),
        config_(SystemOptions{.threads = 2, .network = true, .keys = request.keys}),
        system_(config_) {}

  /// One try: from connecting to the end of the stay.
  Ending stay() {
    if (const std::string why = why_unreachable(request_.address, kConnectLimit); !why.empty())
      return {Ending::Kind::unreachable, why};
    caf::scoped_actor self(system_);
    std::string failure;
    const caf::actor gate = connect(self, failure);
    if (!gate) return {Ending::Kind::unreachable, failure};
    const std::optional<Welcome> welcome = greet(self, gate, failure);
    if (!welcome) return {Ending::Kind::unreachable, failure};
    if (!welcome->refusal.empty()) throw JoinRefused("the run refuses this sampler: " + welcome->refusal);
    return serve(self, *welcome);
  }

 private:
  caf::actor connect(caf::scoped_actor& self, std::string& failure) {
    caf::actor found;
    self->request(connector(system_, request_.keys != nullptr, request_.address.port), kConnectLimit,
                  caf::connect_atom_v, request_.address.host, request_.address.port)
        .receive(
            [&](const caf::node_id&, const caf::strong_actor_ptr& who, const std::set<std::string>&) {
              found = caf::actor_cast<caf::actor>(who);
              if (!found)
                failure =
                    "this process and the run's have one identity: processes of the same number in containers of "
                    "one machine; start it again";
            },
            [&](const caf::error& error) {
              failure = "what listens at " + address_text(request_.address) + " is no motley run" +
                        (request_.keys ? " that holds the same key" : ", or one that needs --key") + " (" +
                        system_.render(error) + ")";
            });
    return found;
  }

  std::optional<Welcome> greet(caf::scoped_actor& self, const caf::actor& gate, std::string& failure) {
    std::optional<Welcome> welcome;
    const Hello hello{.protocol = kFleetProtocol,
                      .version = version(),
                      .name = own_name(),
                      .group = request_.group,
                      .hardware = request_.hardware,
                      .model = request_.model,
                      .instance = request_.instance};
    self->request(gate, kHelloLimit, hello)
        .receive([&](const Welcome& answer) { welcome = answer; },
                 [&](const caf::error& error) { failure = cause_text(system_, error); });
    return welcome;
  }

  MembershipOptions options(const Welcome& welcome) const {
    MembershipOptions options;
    options.token = welcome.token;
    options.weights = welcome.weights;
    options.model = config_from_json("the run's model", welcome.model).resolved();
    Experiment experiment;
    SamplerGroupOptions group;
    group.profile = welcome.profile;
    group.kernels = welcome.kernels;
    if (!kernels::find_profile(welcome.profile))
      throw JoinRefused("this motley has no profile " + welcome.profile + ", which the run's group has");
    options.profile = experiment.group_profile(group);
    if (const std::string mine = kernels::describe(options.profile); mine != welcome.profile_text)
      throw JoinRefused("profile " + welcome.profile + " is \"" + mine + "\" here and \"" + welcome.profile_text +
                        "\" in the run: build both of one source");
    options.decoder = {.max_sequences = static_cast<int64_t>(std::clamp<uint64_t>(welcome.max_sequences, 1, 65536)),
                       .graphs = welcome.graphs,
                       .kv_on_swap = welcome.recompute_kv ? KvOnSwap::recompute : KvOnSwap::keep};
    options.device = request_.device;
    const auto endpoint = [&](uint64_t port) {
      return zmq_endpoint({request_.address.host, static_cast<uint16_t>(port)});
    };
    options.session_endpoint = endpoint(welcome.session_port);
    options.fetch_endpoint = endpoint(welcome.fetch_port);
    options.announce_endpoint = endpoint(welcome.announce_port);
    options.silence = std::chrono::milliseconds(std::clamp<uint64_t>(welcome.silence_ms, 1000, 3600000));
    options.secure = [keys = request_.keys](zmq::socket_t& socket) {
      harden(socket, kFleetSockets);
      if (keys) secure_client(socket, *keys);
    };
    return options;
  }

  Ending serve(caf::scoped_actor& self, const Welcome& welcome) {
    self->monitor(welcome.proxy);
    say_("joined as sampler " + welcome.group + "/" + std::to_string(welcome.replica) + ": " + welcome.profile_text);
    Membership membership(context_, options(welcome));
    std::optional<Ending> ending;
    std::optional<Clock::time_point> leaving, farewell;
    while (!ending) {
      self->receive(
          [&](const Over& over) {
            ending = {over.finished ? Ending::Kind::over : Ending::Kind::interrupted, "the run was stopped"};
          },
          [&](const caf::down_msg& message) {
            ending = {Ending::Kind::lost, "its proxy ended: " + cause_text(system_, message.reason)};
          },
          caf::others >> [](caf::message_view&) -> caf::result<caf::message> { return caf::sec::unexpected_message; },
          caf::after(kPoll) >> [] {});
      if (ending) break;
      // Its proxy ends when it has read the farewell; whoever went before would be taken for lost.
      if (membership.left() && !farewell) farewell = Clock::now();
      if (farewell && Clock::now() - *farewell > kFarewellLimit) ending = {Ending::Kind::left, {}};
      if (const auto cause = membership.broken()) ending = {Ending::Kind::lost, *cause};
      if (!leaving && (stop_.load() != 0 || membership.retired())) {
        leaving = Clock::now();
        membership.leave();
      }
      if (leaving && Clock::now() - *leaving > kLeaveLimit) ending = {Ending::Kind::left, {}};
    }
    if (leaving && ending->kind == Ending::Kind::lost) ending->kind = Ending::Kind::left;
    ending->served = membership.served();
    return *ending;
  }

  const JoinRequest& request_;
  const std::function<void(const std::string&)>& say_;
  StopRequest& stop_;
  zmq::context_t context_;
  SystemConfig config_;
  caf::actor_system system_;
};

}  // namespace

JoinEnd run_sampler(const JoinRequest& request, const std::function<void(const std::string&)>& say, StopRequest& stop) {
  Joiner joiner(request, say, stop);
  const std::string where = address_text(request.address);
  auto since = Clock::now();
  auto pause = kFirstPause;
  int failures = 0;
  std::string said;
  for (;;) {
    const Ending ending = joiner.stay();
    if (ending.kind == Ending::Kind::over) return JoinEnd::run_over;
    if (ending.kind == Ending::Kind::left || stop.load() != 0) return JoinEnd::left;
    if (ending.served) {
      since = Clock::now();
      pause = kFirstPause;
      failures = 0;
    } else if (ending.kind == Ending::Kind::lost && ++failures >= kMostFailures) {
      throw std::runtime_error("it could not serve the run at " + where +
                               " three times in a row, last: " + ending.cause);
    }
    const auto waited = Clock::now() - since;
    if (waited > request.patience)
      throw std::runtime_error("no run at " + where + " for " + std::to_string(request.patience.count()) +
                               " s: " + ending.cause);
    if (std::exchange(said, ending.cause) != ending.cause)
      say((ending.served ? "the run is lost: " : "no run at " + where + " yet: ") + ending.cause +
          "; trying again for " + std::to_string(request.patience.count()) + " s");
    for (auto left = pause; left.count() > 0 && stop.load() == 0; left -= kPoll) std::this_thread::sleep_for(kPoll);
    pause = std::min(2 * pause, kLongestPause);
  }
}

}  // namespace motley::actors
