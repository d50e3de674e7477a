// The official JavaScript client over a WebSocket, always with TLS. Run by test_websocket.py, which says where the
// broker is; NODE_EXTRA_CA_CERTS makes the client trust its certificate.
import assert from "node:assert/strict";
import { describe } from "node:test";
import WebSocket from "ws";
import { assertEmpty, connectionString, ids, numbered, receive, test } from "./bus.mjs";

const options = { retryOptions: { maxRetries: 0 }, webSocketOptions: { webSocket: WebSocket } };

describe("over a WebSocket", { concurrency: true }, () => {
  test("what is sent is received in order and completed", async (bus) => {
    const name = await bus.queue();
    const client = bus.client(connectionString, options);
    await client.createSender(name).sendMessages(numbered(20));
    const receiver = client.createReceiver(name);
    const messages = await receive(receiver, 20);
    assert.deepEqual(ids(messages), ids(numbered(20)));
    for (const message of messages) await receiver.completeMessage(message);
    assert.deepEqual(await receiver.peekMessages(1), []);
    await assertEmpty(receiver);
  });

  test("a large message makes the round trip", async (bus) => {
    const name = await bus.queue();
    const client = bus.client(connectionString, options);
    const body = Buffer.alloc(200 * 1024, "0123456789abcdef");
    await client.createSender(name).sendMessages({ messageId: "large", body });
    const receiver = client.createReceiver(name);
    const [message] = await receive(receiver, 1);
    assert.ok(Buffer.from(message.body).equals(body));
    await receiver.completeMessage(message);
  });

  test("a session is accepted, read and remembered", async (bus) => {
    const name = await bus.queue({ RequiresSession: true });
    const client = bus.client(connectionString, options);
    await client.createSender(name).sendMessages(numbered(3, { sessionId: "s" }));
    const receiver = await client.acceptSession(name, "s");
    const messages = await receive(receiver, 3);
    assert.deepEqual(ids(messages), ["m0", "m1", "m2"]);
    await receiver.setSessionState("half way");
    assert.equal(await receiver.getSessionState(), "half way");
    for (const message of messages) await receiver.completeMessage(message);
  });
});
