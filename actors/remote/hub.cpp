#include "actors/remote/hub.h"

#include <algorithm>

#include "tensor/config_json.h"

namespace motley::actors {
namespace {

/// The address of the n-th port beside the gate's.
std::string beside(const Address& address, uint16_t n) {
  Address other = address;
  if (other.port != 0) other.port = static_cast<uint16_t>(other.port + n);
  return zmq_endpoint(other);
}

}  // namespace

RemoteHub::RemoteHub(const ListenOptions& listen, std::chrono::seconds lost_after) : listen_(listen) {
  if (listen_.keys) gatekeeper_ = std::make_unique<Gatekeeper>(context_, *listen_.keys);
  const auto secure = [this](zmq::socket_t& socket) {
    harden(socket, kFleetSockets);
    if (gatekeeper_) secure_server(socket, *gatekeeper_);
  };
  const std::string endpoint = beside(listen_.address, 1);
  try {
    sessions_ = std::make_unique<SessionServer>(
        context_, SessionServerOptions{.endpoint = endpoint, .secure = secure, .silence = lost_after});
    WeightServerOptions options;
    options.fetch = beside(listen_.address, 2);
    options.announce = beside(listen_.address, 3);
    options.secure = secure;
    weights_ = std::make_unique<WeightServer>(context_, std::move(options));
  } catch (const zmq::error_t& error) {
    throw AddressError(endpoint + " cannot be listened on: " + error.what());
  } catch (const std::runtime_error& error) {
    throw AddressError(error.what());
  }
}

std::string weights_topic(const Fleet& fleet, size_t group) {
  const kernels::NumericProfile profile = fleet.experiment.group_profile(fleet.experiment.samplers.at(group));
  uint64_t digest = 0;
  for (const std::string& text : {kernels::describe(profile), config_to_json(fleet.model)})
    for (const char c : text) digest = kernels::mix(digest, static_cast<uint8_t>(c));
  return profile.name + "-" + std::to_string(digest);
}

}  // namespace motley::actors
