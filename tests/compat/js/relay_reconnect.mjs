// How hyco-ws tries again by itself. `expired`: the relay ends the control channel and is there; prints a line each
// time that it listens. `refused`: every try is refused; prints how many tries there were in each round, of which the
// next begins when twice as many as before have come, and nobody else for a while.
import http from "node:http";
import { createRequire } from "node:module";

const ws = createRequire(import.meta.url)("hyco-ws");
const { TWINBUS_RELAY: relay, TWINBUS_POLICY: policy, TWINBUS_KEY: key } = process.env;

const expired = () => {
  const uri = `${relay.replace("http", "ws")}/$hc/ws-service?sb-hc-action=listen`;
  let count = 0;
  const server = ws.createRelayedServer({ server: uri, token: () => ws.createRelayToken(uri, policy, key, 2) }, () => {});
  server.on("listening", () => {
    console.log("listening");
    if (++count === 2) process.exit(0);
  });
};

const refused = () => {
  const rounds = [];
  let held = [];
  const door = http.createServer();
  door.on("upgrade", (request, socket) => {
    held.push(socket);
    clearTimeout(door.quiet);
    if (held.length < 2 ** rounds.length) return;
    door.quiet = setTimeout(() => {
      // Nobody else came for a while: this was a round.
      rounds.push(held.length);
      const all = held;
      held = [];
      if (rounds.length === 4) {
        console.log(JSON.stringify(rounds));
        process.exit(0);
      }
      for (const each of all) each.end("HTTP/1.1 503 Busy\r\n\r\n");
    }, 150);
  });
  door.listen(0, "127.0.0.1", () => {
    const uri = `ws://127.0.0.1:${door.address().port}/$hc/any?sb-hc-action=listen`;
    ws.createRelayedServer({ server: uri, token: "any" }, () => {}).on("error", () => {});
  });
};

({ expired, refused })[process.argv[2]]();
