#!/usr/bin/python3
"""An engine for trying http_engine.py: draws every token of the model's vocabulary alike, and says so.

    stub_engine.py PORT
"""

import http.server
import json
import math
import random
import sys


class Handler(http.server.BaseHTTPRequestHandler):
    vocabulary = 0

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer = self.load(message) if self.path == "/load" else self.generate(message)
        data = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def load(self, message):
        with open(message["image"], "rb") as file:
            if len(file.read()) != sum(part["bytes"] for part in message["parts"]):
                raise ValueError("the image is not as long as its parts")
        Handler.vocabulary = json.loads(message["config"])["vocab_size"]
        return {}

    def generate(self, message):
        draw = random.Random(message["seed"])
        tokens = []
        while len(tokens) < message["max_new_tokens"] and (not tokens or tokens[-1] not in message["stop_tokens"]):
            tokens.append(draw.randrange(self.vocabulary))
        return {"tokens": tokens, "log_probs": [-math.log(self.vocabulary)] * len(tokens)}

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
