// A sampler of a run elsewhere: joins it, serves it, and comes back when the connection breaks. The one entry of
// `motley sampler`; no CAF type is seen here.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>

#include "actors/run.h"
#include "actors/security/addresses.h"
#include "actors/security/keys.h"
#include "kernels/device.h"

namespace motley::actors {

struct JoinRequest {
  Address address;
  std::shared_ptr<const Keys> keys;  // null: none
  std::string group;                 // empty: the run chooses by `hardware`, or its only one
  std::string hardware;              // as profiles name it; empty: a CPU
  kernels::Device device;
  std::string model;                   // config.json that the run must have; empty: whatever it has
  std::string instance;                // of a provisioner that started this process; empty: nobody did
  std::chrono::seconds patience{600};  // for which a run that is lost, or not there yet, is tried for
};

/// The run does not take this sampler, and would not another time: what it says, and why.
class JoinRefused : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

enum class JoinEnd : uint8_t {
  run_over,  // the run has finished
  left,      // it was asked to stop, or the run let it go
};

/// Serves until the run is over or `stop` is set; what it was doing then goes on elsewhere. `say` gets lines for the
/// log. Throws JoinRefused, and std::runtime_error when its patience is at an end, or when it failed three times in a
/// row.
JoinEnd run_sampler(const JoinRequest& request, const std::function<void(const std::string&)>& say, StopRequest& stop);

}  // namespace motley::actors
