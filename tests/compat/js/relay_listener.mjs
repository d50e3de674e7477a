// Listens with the published clients of Hybrid Connections: hyco-https answers requests, hyco-ws echoes sockets.
// Says `http listening` and `ws listening` each time that it does so, and ends with its standard input.
import { createRequire } from "node:module";

const require = createRequire(import.meta.url);
const https = require("hyco-https");
const ws = require("hyco-ws");
const { TWINBUS_RELAY: relay, TWINBUS_POLICY: policy, TWINBUS_KEY: key } = process.env;

const listenUri = (path) => `${relay.replace("http", "ws")}/$hc/${path}?sb-hc-action=listen`;

const httpUri = listenUri("http-service");
const server = https.createRelayedServer(
  { server: httpUri, token: () => https.createRelayToken(httpUri, policy, key) },
  (request, response) => {
    const parts = [];
    request.on("data", (part) => parts.push(part));
    request.on("end", () => {
      const url = new URL(request.url, "http://service");
      if (url.pathname.endsWith("/silent")) return; // No answer at all.
      response.statusCode = Number(url.searchParams.get("status") ?? 200);
      response.setHeader("X-Target", request.url);
      response.setHeader("X-Headers", JSON.stringify(request.headers));
      response.setHeader("Content-Type", "text/plain");
      const size = url.searchParams.get("size");
      if (url.searchParams.has("pieces")) {
        // More than the control channel takes, then a pause: the first part must arrive before the second is written.
        response.write(Buffer.alloc(100 * 1024, "a"));
        process.stdin.once("data", () => response.end(Buffer.alloc(100 * 1024, "b")));
      } else if (size !== null) {
        response.end(Buffer.alloc(Number(size), "x"));
      } else {
        response.end(parts.length ? Buffer.concat(parts) : `hello ${request.method}`);
      }
    });
  },
);
server.on("listening", () => console.log("http listening"));
server.on("error", () => {});
server.listen();

const wsUri = listenUri("ws-service");
// The client itself tries again at once, and each failed try begets two. The last two lines end its own trying after
// the first failure and begin anew after a moment; docs/relay.md tells why.
const listen = () => {
  const echoing = ws.createRelayedServer({ server: wsUri, token: () => ws.createRelayToken(wsUri, policy, key) }, (socket) => {
    socket.on("message", (data, flags) => socket.send(data, { binary: flags.binary }));
    socket.on("error", () => {});
  });
  echoing.on("listening", () => console.log("ws listening"));
  echoing.on("error", () => (echoing.closeRequested = true));
  echoing.on("close", () => setTimeout(listen, 100));
};
listen();

process.stdin.on("end", () => process.exit(0));
process.stdin.resume();
