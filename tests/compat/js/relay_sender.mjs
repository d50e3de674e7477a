// Sends with the published client hyco-ws: each size of the arguments is a message, which must come back as it was.
// Prints what was seen as JSON.
import { createHash, randomBytes } from "node:crypto";
import { createRequire } from "node:module";

const ws = createRequire(import.meta.url)("hyco-ws");
const { TWINBUS_RELAY: relay, TWINBUS_POLICY: policy, TWINBUS_KEY: key } = process.env;
const uri = `${relay.replace("http", "ws")}/$hc/ws-service?sb-hc-action=connect`;
const digest = (data) => createHash("sha256").update(data).digest("hex");

const sent = process.argv.slice(2).map((size) => randomBytes(Number(size)));
const seen = [];
ws.relayedConnect(uri, ws.createRelayToken(uri, policy, key), (socket) => {
  socket.on("message", (data) => {
    seen.push(digest(data));
    if (seen.length < sent.length) {
      socket.send(sent[seen.length], { binary: true });
    } else {
      socket.close(1000, "done");
    }
  });
  socket.on("close", (code) => {
    console.log(JSON.stringify({ equal: seen.join() === sent.map(digest).join(), count: seen.length, code }));
  });
  socket.send(sent[0], { binary: true });
}).on("error", (problem) => console.log(JSON.stringify({ error: problem.message })));
