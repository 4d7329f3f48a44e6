"""Joins a motley run as a sampler in the name of another engine: docs/sampler-protocol.md is the protocol.

An engine is any object with

    load(version, manifest, image)     new weights: what manifest() below reads, and their bytes; called while nothing
                                       is being drawn
    generate(request) -> (tokens, log_probs)
                                       request has tokens, max_new_tokens, stop_tokens, temperature, top_p, top_k, seed,
                                       session, attempt; log_probs are under the distribution that each token was really
                                       drawn from; called from several threads

Needs Debian's python3-zmq, python3-msgpack, python3-xxhash and python3-zstandard.
"""

import array
import concurrent.futures
import struct
import time

import msgpack
import xxhash
import zmq
import zstandard

MAGIC, PROTOCOL, WEIGHT_PROTOCOL = b"MTLY", 1, 1
PING, REPORT, CALIBRATED, LIVE, NOTE, LEAVING, HELLO = 2, 3, 4, 5, 6, 7, 8
PONG, DECODE, CALIBRATE, RETIRE, REFUSED, WELCOME = 17, 18, 19, 20, 21, 22
NEWEST, CHUNK, DONE = 0, 1, 2  # what is asked of the weights' socket
HEADER = struct.Struct("<4sBBHQQ")
ANSWER_SECONDS = 10


class Refused(Exception):
    """The run does not take this sampler, or has let it go."""


def numbers(code, data):
    values = array.array(code)
    values.frombytes(data)
    return list(values)


def packed(code, values):
    return array.array(code, values).tobytes()


class Session:
    """The sessions' socket: frames with a checksum and a running number."""

    def __init__(self, context, address):
        self.socket = context.socket(zmq.DEALER)
        self.socket.linger = 500
        self.socket.connect(address)
        self.sent = self.received = 0
        self.spoke = self.heard = time.monotonic()

    def send(self, kind, **fields):
        body = msgpack.packb(fields) if fields else b""
        self.socket.send(HEADER.pack(MAGIC, PROTOCOL, kind, 0, self.sent, xxhash.xxh3_64_intdigest(body)) + body)
        self.sent += 1
        self.spoke = time.monotonic()

    def receive(self):
        """The next (kind, fields), or None."""
        try:
            frame = self.socket.recv(zmq.NOBLOCK)
        except zmq.Again:
            return None
        magic, protocol, kind, _, number, checksum = HEADER.unpack_from(frame)
        body = frame[HEADER.size :]
        if magic != MAGIC or protocol != PROTOCOL or xxhash.xxh3_64_intdigest(body) != checksum:
            raise Refused("what the run sent cannot be read")
        fields = msgpack.unpackb(body) if body else {}
        if kind == REFUSED:
            raise Refused(fields["text"])
        if number != self.received:
            raise Refused("a frame of the run is missing")
        self.received += 1
        self.heard = time.monotonic()
        return kind, fields


class Weights:
    """The weights' sockets: what is announced, and versions as a whole."""

    def __init__(self, context, host, welcome):
        self.context, self.topic = context, welcome["weights"]
        self.fetch_address = f"tcp://{host}:{welcome['fetch_port']}"
        self.announced = context.socket(zmq.SUB)
        self.announced.connect(f"tcp://{host}:{welcome['announce_port']}")
        self.announced.subscribe(self.topic.encode() + b"\n")
        self.attempt = 0

    def news(self):
        """Whether a version was announced since the last call."""
        heard = False
        while self.announced.poll(0):
            self.announced.recv_multipart()
            heard = True
        return heard

    def ask(self, socket, what, version=(0, 0), chunk=0):
        self.attempt += 1
        request = [WEIGHT_PROTOCOL, what, self.attempt, self.topic, *version, 0, chunk, 0]
        socket.send(msgpack.packb(request))
        if what == DONE:
            return None
        if not socket.poll(ANSWER_SECONDS * 1000):
            raise Refused(f"{self.fetch_address} gives no weights")
        header, data = socket.recv_multipart()
        _, reply, _, _, encoding, _ = msgpack.unpackb(header)
        if reply > 1:
            return None  # none of that kind yet, or no longer
        return zstandard.ZstdDecompressor().decompress(data) if encoding == 1 else data

    def newest(self):
        """(manifest, image) of the newest version, or None."""
        socket = self.context.socket(zmq.DEALER)
        socket.linger = 0
        try:
            socket.connect(self.fetch_address)
            data = self.ask(socket, NEWEST)
            if data is None:
                return None
            found = manifest(data)
            image = bytearray()
            for index, expected in enumerate(found["hashes"]):
                chunk = self.ask(socket, CHUNK, (found["version"], found["digest"]), index)
                if chunk is None:
                    return None
                if xxhash.xxh3_64_intdigest(chunk) != expected:
                    raise Refused(f"chunk {index} of the weights is damaged")
                image += chunk
            return found, bytes(image)
        finally:
            socket.close()


def manifest(data):
    _, kind, version, digest, config, chunk_bytes, size, parts, hashes = msgpack.unpackb(data)
    names = ("name", "kind", "shape", "bytes", "fingerprint")
    return {
        "version": version,
        "digest": digest,
        "config": config,
        "bytes": size,
        "parts": [dict(zip(names, part)) for part in parts],
        "hashes": numbers("Q", hashes),
    }


class Sampler:
    """One stay in a run. `address`: HOST:PORT of the sessions' socket, the port after that of --listen."""

    def __init__(self, address, group, name, engine, threads=8):
        self.engine, self.threads = engine, threads
        self.context = zmq.Context()
        self.session = Session(self.context, "tcp://" + address)
        self.session.send(HELLO, protocol=PROTOCOL, name=name, group=group)
        self.welcome = self.wait_for(WELCOME)
        self.weights = Weights(self.context, address.rsplit(":", 1)[0], self.welcome)
        self.version = None
        self.waiting, self.running = [], {}
        self.leaving = False

    def wait_for(self, kind):
        deadline = time.monotonic() + ANSWER_SECONDS
        while time.monotonic() < deadline:
            if self.session.socket.poll(100):
                got, fields = self.session.receive()
                if got == kind:
                    return fields
        raise Refused("the run does not answer")

    def serve(self):
        """Until the run lets it go, or is over."""
        silence = self.welcome["silence_ms"] / 1000
        wanted, look_at = True, 0.0
        with concurrent.futures.ThreadPoolExecutor(self.threads) as pool:
            while not (self.leaving and not self.running):
                self.session.socket.poll(5)
                self.take_frames()
                self.report_finished()
                wanted = self.weights.news() or wanted
                if wanted and not self.running and time.monotonic() >= look_at:  # a reply is drawn from one version
                    wanted = not self.load()
                    look_at = time.monotonic() + 0.2  # where there is none yet
                while self.waiting and not wanted:
                    request = self.waiting.pop(0)
                    self.running[pool.submit(self.draw, request)] = request
                now = time.monotonic()
                if now - self.session.spoke > silence / 5:
                    self.session.send(PING)
                if now - self.session.heard > silence:
                    raise Refused("the run has said nothing for a while")
        self.session.send(LEAVING)

    def load(self):
        newest = self.weights.newest()
        if newest is None:
            return False
        found, image = newest
        self.engine.load(found["version"], found, image)
        self.version = found["version"]
        self.session.send(LIVE, version=found["version"], digest=found["digest"])
        return True

    def take_frames(self):
        while (got := self.session.receive()) is not None:
            kind, fields = got
            if kind == DECODE:
                self.waiting += [unpacked(request) for request in fields["requests"]]
            elif kind == CALIBRATE:
                self.calibrate([unpacked(request) for request in fields["requests"]])
            elif kind == RETIRE:
                self.waiting.clear()
                self.leaving = True

    def calibrate(self, requests):
        """The first half warms up; the second is measured with all slots full."""
        half = len(requests) // 2
        with concurrent.futures.ThreadPoolExecutor(self.threads) as pool:
            list(pool.map(self.engine.generate, requests[:half]))
            begin = time.monotonic()
            drawn = sum(len(tokens) for tokens, _ in pool.map(self.engine.generate, requests[half:]))
        self.session.send(CALIBRATED, tokens=drawn, busy_ns=int((time.monotonic() - begin) * 1e9))

    def draw(self, request):
        begin = time.monotonic()
        tokens, log_probs = self.engine.generate(request)
        return tokens, log_probs, time.monotonic() - begin

    def report_finished(self):
        for future in [each for each in self.running if each.done()]:
            request = self.running.pop(future)
            try:
                tokens, log_probs, seconds = future.result()
                finish, error = ("stop" if tokens[-1] in request["stop_tokens"] else "length"), ""
            except Exception as reason:  # fails its own session only
                tokens, log_probs, seconds, finish, error = [], [], 0.0, "failed", str(reason)
            count = len(tokens)
            output = {
                "id": request["id"],
                "finish": finish,
                "error": error,
                "tokens": packed("i", tokens),
                "log_q": packed("f", log_probs),
                "versions": packed("Q", [self.version] * count),
                "offsets": packed("q", [0] * (count + 1)),
                "ids": b"",
                "id_log_q": b"",
                "log_tail": packed("f", [0.0] * count),
            }
            counts = [count, int(seconds * 1e9), 0, 0, 1, len(request["tokens"]) + count, len(request["tokens"]), 0, 0]
            self.session.send(REPORT, counts=counts, outputs=[output])


def unpacked(request):
    return {**request, "tokens": numbers("i", request["tokens"]), "stop_tokens": numbers("i", request["stop_tokens"])}
