import assert from "node:assert/strict";
import { describe } from "node:test";
import { assertEmpty, ids, numbered, receive, test } from "./bus.mjs";

describe("sending", { concurrency: true }, () => {
  test("a single message arrives with everything that was set on it", async (bus) => {
    const sent = {
      body: { order: 7, lines: ["a", "b"] },
      messageId: "order-7",
      contentType: "application/json",
      correlationId: "correlation",
      partitionKey: "session",
      sessionId: "session",
      replyToSessionId: "reply-session",
      timeToLive: 60_000,
      subject: "subject",
      to: "to",
      replyTo: "reply-to",
      applicationProperties: { text: "é", whole: 5, half: 2.5, yes: true, none: null },
    };
    const { receiver } = await bus.stocked([sent]);
    const [got] = await receive(receiver, 1);
    for (const [name, value] of Object.entries(sent)) assert.deepEqual(got[name], value, name);
    assert.equal(got.deliveryCount, 0);
    assert.equal(got.state, "active");
    assert.equal(got.sequenceNumber.toNumber(), 1);
    assert.ok(Math.abs(got.enqueuedTimeUtc - Date.now()) < 20_000);
    assert.equal(got.expiresAtUtc - got.enqueuedTimeUtc, 60_000);
    assert.ok(got.lockedUntilUtc > new Date());
    assert.match(got.lockToken, /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/);
  });

  test("a body of any kind comes back as it was", async (bus) => {
    const bodies = ["plain text, ünïcode", 42, null, { nested: { list: [1, 2, 3] } }, [1, "two", null]];
    const bytes = Buffer.from([0, 1, 2, 253, 254, 255]);
    const { receiver } = await bus.stocked([...bodies, bytes].map((body) => ({ messageId: "m", body })));
    const got = (await receive(receiver, bodies.length + 1)).map((message) => message.body);
    assert.deepEqual(got.slice(0, -1), bodies);
    assert.deepEqual(Buffer.from(got.at(-1)), bytes);
  });

  test("an AMQP body keeps its type", async (bus) => {
    const sent = [
      { bodyType: "value", body: "a value" },
      { bodyType: "sequence", body: [[1, 2], ["three"]] },
      { bodyType: "data", body: { as: "data" } },
    ];
    const { receiver } = await bus.stocked(sent.map((message) => ({ ...message, properties: { messageId: "m" } })));
    const got = await receive(receiver, 3);
    assert.deepEqual(
      got.map(({ body, _rawAmqpMessage: raw }) => ({ bodyType: raw.bodyType, body })),
      sent,
    );
  });

  test("a message without an id gets one", async (bus) => {
    const { receiver } = await bus.stocked([{ body: "anonymous" }, { body: "anonymous" }]);
    const got = await receive(receiver, 2);
    for (const message of got) assert.match(message.messageId, /^[0-9a-f]{32}$/);
    assert.notEqual(got[0].messageId, got[1].messageId);
    for (const message of got) await receiver.completeMessage(message);
    await assertEmpty(receiver);
  });

  test("an array of messages arrives in order", async (bus) => {
    const { receiver } = await bus.stocked(numbered(20));
    assert.deepEqual(ids(await receive(receiver, 20)), ids(numbered(20)));
  });

  test("a batch takes messages until it is full, and arrives whole", async (bus) => {
    const { sender, receiver } = await bus.stocked([]);
    const batch = await sender.createMessageBatch();
    assert.equal(batch.maxSizeInBytes, 262_144);
    let count = 0;
    while (batch.tryAddMessage({ messageId: `m${count}`, body: Buffer.alloc(10_000) })) count += 1;
    assert.equal(batch.count, count);
    assert.ok(count > 20);
    await sender.sendMessages(batch);
    assert.deepEqual(ids(await receive(receiver, count)), ids(numbered(count)));
  });

  test("messages sent at the same time all arrive", async (bus) => {
    const { sender, receiver } = await bus.stocked([]);
    await Promise.all(numbered(50).map((message) => sender.sendMessages(message)));
    assert.deepEqual(ids(await receive(receiver, 50)).sort(), ids(numbered(50)).sort());
  });

  test("a large message makes the round trip in several frames", async (bus) => {
    const body = Buffer.alloc(250_000, "0123456789abcdef");
    const { receiver } = await bus.stocked([{ messageId: "large", body }]);
    const [got] = await receive(receiver, 1);
    assert.ok(Buffer.from(got.body).equals(body));
    await receiver.completeMessage(got);
  });

  test("a duplicate within the window is accepted and dropped", async (bus) => {
    const settings = { RequiresDuplicateDetection: true, DuplicateDetectionHistoryTimeWindow: "PT1M" };
    const { sender, receiver } = await bus.stocked([], settings);
    await sender.sendMessages({ messageId: "once", body: 1 });
    await sender.sendMessages({ messageId: "once", body: 2 });
    await sender.sendMessages({ messageId: "other", body: 3 });
    const got = await receive(receiver, 2);
    assert.deepEqual(got.map((message) => message.body), [1, 3]);
    await assertEmpty(receiver);
  });

  test("a message that outlives its time is gone, or dead-lettered if the queue says so", async (bus) => {
    const short = [{ messageId: "short", body: "x", timeToLive: 1_000 }];
    // One after the other: when the second message is over, so is the first.
    const dropping = await bus.stocked(short);
    const keeping = await bus.stocked(short, { DeadLetteringOnMessageExpiration: true });
    const dead = keeping.client.createReceiver(keeping.name, { subQueueType: "deadLetter" });
    const [got] = await receive(dead, 1, 15_000);
    assert.equal(got.messageId, "short");
    assert.equal(got.deadLetterReason, "TTLExpiredException");
    await assertEmpty(dropping.receiver);
    await assertEmpty(dropping.client.createReceiver(dropping.name, { subQueueType: "deadLetter" }));
  });
});
