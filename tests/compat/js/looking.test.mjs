import assert from "node:assert/strict";
import { describe } from "node:test";
import { assertEmpty, ids, numbered, receive, test } from "./bus.mjs";

const inMs = (delay) => new Date(Date.now() + delay);

describe("peeking and scheduling", { concurrency: true }, () => {
  test("peek shows messages without locking them, and goes on where it stopped", async (bus) => {
    const { receiver } = await bus.stocked(numbered(5));
    assert.deepEqual(ids(await receiver.peekMessages(2)), ["m0", "m1"]);
    const rest = await receiver.peekMessages(10);
    assert.deepEqual(ids(rest), ["m2", "m3", "m4"]);
    assert.deepEqual(await receiver.peekMessages(10), []);
    assert.deepEqual(ids(await receive(receiver, 5)), ids(numbered(5)));
  });

  test("peek starts at the number it is given", async (bus) => {
    const { receiver } = await bus.stocked(numbered(4));
    const all = await receiver.peekMessages(10);
    const from = await receiver.peekMessages(10, { fromSequenceNumber: all[2].sequenceNumber });
    assert.deepEqual(ids(from), ["m2", "m3"]);
  });

  test("peek shows locked, deferred and scheduled messages with their state", async (bus) => {
    const { sender, receiver } = await bus.stocked(numbered(3));
    const [deferred] = await receive(receiver, 1);
    await receiver.deferMessage(deferred);
    await receive(receiver, 1);
    await sender.scheduleMessages({ messageId: "later", body: 1 }, inMs(3_600_000));
    const seen = await receiver.peekMessages(10);
    assert.deepEqual(seen.map((message) => [message.messageId, message.state]), [
      ["m0", "deferred"],
      ["m1", "active"],
      ["m2", "active"],
      ["later", "scheduled"],
    ]);
    assert.equal(seen[1].lockToken, undefined);
  });

  test("peek in an empty queue finds nothing", async (bus) => {
    const { receiver } = await bus.stocked([]);
    assert.deepEqual(await receiver.peekMessages(10), []);
  });

  test("peek shows the dead-letter queue", async (bus) => {
    const { name, client, receiver } = await bus.stocked(numbered(1));
    const [message] = await receive(receiver, 1);
    await receiver.deadLetterMessage(message, { deadLetterReason: "r", deadLetterErrorDescription: "d" });
    const [dead] = await client.createReceiver(name, { subQueueType: "deadLetter" }).peekMessages(10);
    assert.deepEqual([dead.messageId, dead.deadLetterReason, dead.deadLetterErrorDescription], ["m0", "r", "d"]);
  });

  test("a scheduled message arrives at its time and not before", async (bus) => {
    const { sender, receiver } = await bus.stocked([]);
    const due = inMs(3_000);
    const numbers = await sender.scheduleMessages(numbered(2), due);
    assert.equal(numbers.length, 2);
    await assertEmpty(receiver);
    const got = await receive(receiver, 2);
    assert.deepEqual(ids(got).sort(), ["m0", "m1"]);
    for (const message of got) {
      assert.ok(message.enqueuedTimeUtc.getTime() >= due.getTime() - 1, "enqueued when it was due");
      assert.deepEqual(message.scheduledEnqueueTimeUtc, due);
      assert.equal(message.state, "active");
    }
  });

  test("a message with a scheduled time on the ordinary link waits too", async (bus) => {
    const { sender, receiver } = await bus.stocked([]);
    await sender.sendMessages({ messageId: "m", body: 1, scheduledEnqueueTimeUtc: inMs(2_000) });
    await assertEmpty(receiver);
    assert.deepEqual(ids(await receive(receiver, 1)), ["m"]);
  });

  test("a cancelled message never arrives", async (bus) => {
    const { sender, receiver } = await bus.stocked([]);
    const numbers = await sender.scheduleMessages(numbered(3), inMs(1_500));
    await sender.cancelScheduledMessages([numbers[0], numbers[2]]);
    assert.deepEqual(ids(await receiver.peekMessages(10)), ["m1"]);
    assert.deepEqual(ids(await receive(receiver, 1)), ["m1"]);
    await assertEmpty(receiver);
  });

  test("what was cancelled cannot be cancelled again", async (bus) => {
    const { sender } = await bus.stocked([]);
    const [number] = await sender.scheduleMessages(numbered(1), inMs(3_600_000));
    await sender.cancelScheduledMessages(number);
    await assert.rejects(sender.cancelScheduledMessages(number), { code: "MessageNotFound" });
  });
});
