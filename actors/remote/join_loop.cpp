#include "actors/remote/join_loop.h"

#include <unistd.h>

#include <algorithm>
#include <thread>

#include "actors/remote/hub.h"
#include "actors/system.h"
#include "actors/version.h"

namespace motley::actors {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kConnectLimit{5}, kHelloLimit{10};
constexpr std::chrono::milliseconds kPoll{20}, kFirstPause{250}, kLongestPause{4000};
constexpr std::chrono::seconds kFarewellLimit{3};
constexpr int kMostFailures = 3;  // in a row, of a stay

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
  Joiner(const Joining& joining, StopRequest& stop)
      : joining_(joining),
        stop_(stop),
        config_(SystemOptions{.threads = 2, .network = true, .keys = joining.keys}),
        system_(config_) {}

  /// One try: from connecting to the end of the stay.
  Ending stay() {
    if (const std::string why = why_unreachable(joining_.address, kConnectLimit); !why.empty())
      return {Ending::Kind::unreachable, why};
    caf::scoped_actor self(system_);
    std::string failure;
    const caf::actor gate = connect(self, failure);
    if (!gate) return {Ending::Kind::unreachable, failure};
    const std::optional<Welcome> welcome = greet(self, gate, failure);
    if (!welcome) return {Ending::Kind::unreachable, failure};
    if (!welcome->refusal.empty())
      throw JoinRefused("the run refuses this " + joining_.hello.role + ": " + welcome->refusal);
    return serve(self, *welcome);
  }

 private:
  caf::actor connect(caf::scoped_actor& self, std::string& failure) {
    caf::actor found;
    self->request(connector(system_, joining_.keys != nullptr, joining_.address.port), kConnectLimit,
                  caf::connect_atom_v, joining_.address.host, joining_.address.port)
        .receive(
            [&](const caf::node_id&, const caf::strong_actor_ptr& who, const std::set<std::string>&) {
              found = caf::actor_cast<caf::actor>(who);
              if (!found)
                failure =
                    "this process and the run's have one identity: processes of the same number in containers of "
                    "one machine; start it again";
            },
            [&](const caf::error& error) {
              failure = "what listens at " + address_text(joining_.address) + " is no motley run" +
                        (joining_.keys ? " that holds the same key" : ", or one that needs --key") + " (" +
                        system_.render(error) + ")";
            });
    return found;
  }

  std::optional<Welcome> greet(caf::scoped_actor& self, const caf::actor& gate, std::string& failure) {
    std::optional<Welcome> welcome;
    Hello hello = joining_.hello;
    hello.protocol = kFleetProtocol;
    hello.version = version();
    hello.name = own_name();
    self->request(gate, kHelloLimit, hello)
        .receive([&](const Welcome& answer) { welcome = answer; },
                 [&](const caf::error& error) { failure = cause_text(system_, error); });
    return welcome;
  }

  Links links(const Welcome& welcome) {
    Links links{.context = context_, .host = joining_.address.host, .secure = {}, .session = {}};
    links.secure = [keys = joining_.keys](zmq::socket_t& socket) {
      harden(socket, kFleetSockets);
      if (keys) secure_client(socket, *keys);
    };
    links.session = {.endpoint = links.endpoint(welcome.session_port),
                     .token = welcome.token,
                     .secure = links.secure,
                     .silence = std::chrono::milliseconds(std::clamp<uint64_t>(welcome.silence_ms, 1000, 3600000))};
    return links;
  }

  Ending serve(caf::scoped_actor& self, const Welcome& welcome) {
    self->monitor(welcome.proxy);
    const std::unique_ptr<Stay> stay = joining_.begin(welcome, links(welcome));
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
      if (ending) {
        stay->broken();  // throws what has brought it about
        break;
      }
      // Its proxy ends when it has read the farewell; whoever went before would be taken for lost.
      if (stay->left() && !farewell) farewell = Clock::now();
      if (farewell && Clock::now() - *farewell > kFarewellLimit) ending = {Ending::Kind::left, {}};
      if (const auto cause = stay->broken()) ending = {Ending::Kind::lost, *cause};
      if (!leaving && (stop_.load() != 0 || stay->retired())) {
        leaving = Clock::now();
        stay->leave();
      }
      if (leaving && Clock::now() - *leaving > joining_.leave_limit) ending = {Ending::Kind::left, {}};
    }
    if (leaving && ending->kind == Ending::Kind::lost) ending->kind = Ending::Kind::left;
    ending->served = stay->served();
    return *ending;
  }

  const Joining& joining_;
  StopRequest& stop_;
  zmq::context_t context_;
  SystemConfig config_;
  caf::actor_system system_;
};

}  // namespace

std::string Links::endpoint(uint64_t port) const { return zmq_endpoint({host, static_cast<uint16_t>(port)}); }

JoinEnd join_run(const Joining& joining, const std::function<void(const std::string&)>& say, StopRequest& stop) {
  Joiner joiner(joining, stop);
  const std::string where = address_text(joining.address);
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
    if (waited > joining.patience)
      throw std::runtime_error("no run at " + where + " for " + std::to_string(joining.patience.count()) +
                               " s: " + ending.cause);
    if (std::exchange(said, ending.cause) != ending.cause)
      say((ending.served ? "the run is lost: " : "no run at " + where + " yet: ") + ending.cause +
          "; trying again for " + std::to_string(joining.patience.count()) + " s");
    for (auto left = pause; left.count() > 0 && stop.load() == 0; left -= kPoll) std::this_thread::sleep_for(kPoll);
    pause = std::min(2 * pause, kLongestPause);
  }
}

}  // namespace motley::actors
