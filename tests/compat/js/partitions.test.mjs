import assert from "node:assert/strict";
import { describe } from "node:test";
import { assertEmpty, ids, numbered, receive, test } from "./bus.mjs";

const PARTITIONED = { EnablePartitioning: true };
const IN_SESSIONS = { RequiresSession: true, EnablePartitioning: true };
const fragment = (message) => message.sequenceNumber.shiftRight(48).toNumber();
const later = () => new Date(Date.now() + 3_600_000);

describe("partitions", { concurrency: true }, () => {
  test("messages without a key go to many fragments and are settled in each", async (bus) => {
    const { sender, receiver } = await bus.stocked([], PARTITIONED);
    for (const message of numbered(20)) await sender.sendMessages(message);
    const got = await receive(receiver, 20);
    assert.equal(new Set(got.map(fragment)).size, 16);
    assert.equal(new Set(ids(got)).size, 20);
    for (const message of got) await receiver.completeMessage(message);
    await assertEmpty(receiver);
  });

  test("a key keeps its messages in one fragment and in order", async (bus) => {
    const { sender, receiver } = await bus.stocked([], PARTITIONED);
    for (const message of numbered(5, { partitionKey: "k" })) await sender.sendMessages(message);
    const got = await receive(receiver, 5);
    assert.deepEqual(ids(got), ["m0", "m1", "m2", "m3", "m4"]);
    assert.equal(new Set(got.map(fragment)).size, 1);
  });

  test("peeking on from the last number sees every message once", async (bus) => {
    const { sender, receiver } = await bus.stocked([], PARTITIONED);
    for (const message of numbered(20)) await sender.sendMessages(message);
    const seen = [];
    let page = await receiver.peekMessages(6);
    while (page.length > 0) {
      seen.push(...page);
      page = await receiver.peekMessages(6, { fromSequenceNumber: seen.at(-1).sequenceNumber.add(1) });
    }
    assert.equal(new Set(ids(seen)).size, 20);
    assert.equal(seen.length, 20);
  });

  test("deferred and scheduled messages are found by their numbers", async (bus) => {
    const { sender, receiver } = await bus.stocked([{ messageId: "d", partitionKey: "k", body: "d" }], PARTITIONED);
    const [message] = await receive(receiver, 1);
    await receiver.deferMessage(message);
    const [deferred] = await receiver.receiveDeferredMessages(message.sequenceNumber);
    assert.equal(deferred.messageId, "d");
    await receiver.completeMessage(deferred);
    const numbers = await sender.scheduleMessages(numbered(2, { partitionKey: "k" }), later());
    assert.deepEqual(numbers.map((number) => number.shiftRight(48).toNumber()), [fragment(message), fragment(message)]);
    await sender.cancelScheduledMessages(numbers);
    assert.deepEqual(await receiver.peekMessages(10), []);
  });

  test("sessions are received by name and as the next that is free", async (bus) => {
    const { name, client, sender } = await bus.stocked([], IN_SESSIONS);
    for (const sessionId of ["a", "b"]) await sender.sendMessages(numbered(2, { sessionId }));
    const one = await client.acceptSession(name, "a");
    await one.setSessionState("half way");
    assert.equal(String(await one.getSessionState()), "half way");
    assert.deepEqual(ids(await receive(one, 2)), ["m0", "m1"]);
    const next = await client.acceptNextSession(name);
    assert.equal(next.sessionId, "b");
    assert.deepEqual(ids(await receive(next, 2)), ["m0", "m1"]);
  });
});
