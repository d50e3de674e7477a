import assert from "node:assert/strict";
import { describe } from "node:test";
import { assertEmpty, emptied, ids, numbered, receive, sleepUntil, test } from "./bus.mjs";

describe("settling", { concurrency: true }, () => {
  test("a completed message is gone", async (bus) => {
    const { receiver } = await bus.stocked(numbered(3));
    const messages = await receive(receiver, 3);
    await Promise.all(messages.map((message) => receiver.completeMessage(message)));
    assert.deepEqual(await receiver.peekMessages(10), []);
  });

  test("an abandoned message comes again, counted, with the changed properties", async (bus) => {
    const { receiver } = await bus.stocked([
      { messageId: "m", body: "same", applicationProperties: { kept: "yes", changed: 1 } },
    ]);
    const [first] = await receive(receiver, 1);
    await receiver.abandonMessage(first, { changed: 2, added: "new" });
    const [second] = await receive(receiver, 1);
    assert.equal(second.deliveryCount, 1);
    assert.equal(second.body, "same");
    assert.deepEqual(second.applicationProperties, { kept: "yes", changed: 2, added: "new" });
    assert.notEqual(second.lockToken, first.lockToken);
    await receiver.completeMessage(second);
  });

  test("an abandoned message keeps its place in the queue", async (bus) => {
    const { receiver } = await bus.stocked(numbered(3));
    const [first] = await receive(receiver, 1);
    await receiver.abandonMessage(first);
    assert.deepEqual(ids(await receive(receiver, 3)), ["m0", "m1", "m2"]);
  });

  test("a message abandoned too often is dead-lettered with the documented reason", async (bus) => {
    const { name, client, receiver } = await bus.stocked(numbered(1), { MaxDeliveryCount: 2 });
    for (const expected of [0, 1]) {
      const [message] = await receive(receiver, 1);
      assert.equal(message.deliveryCount, expected);
      await receiver.abandonMessage(message);
    }
    await assertEmpty(receiver);
    const [dead] = await receive(client.createReceiver(name, { subQueueType: "deadLetter" }), 1);
    assert.equal(dead.deadLetterReason, "MaxDeliveryCountExceeded");
    assert.equal(dead.messageId, "m0");
  });

  test("a deferred message is received by its number only, and then settled", async (bus) => {
    const { receiver } = await bus.stocked(numbered(2, { applicationProperties: { kept: 1 } }));
    const [first] = await receive(receiver, 1);
    await receiver.deferMessage(first, { why: "later" });
    assert.deepEqual(ids(await receive(receiver, 1)), ["m1"]);
    await assertEmpty(receiver);
    const [deferred] = await receiver.receiveDeferredMessages(first.sequenceNumber);
    assert.equal(deferred.messageId, "m0");
    assert.equal(deferred.state, "deferred");
    assert.deepEqual(deferred.applicationProperties, { kept: 1, why: "later" });
    await receiver.completeMessage(deferred);
    await assert.rejects(receiver.receiveDeferredMessages(first.sequenceNumber), { code: "MessageNotFound" });
  });

  test("several deferred messages are received together, by another receiver too", async (bus) => {
    const { name, receiver } = await bus.stocked(numbered(3));
    const messages = await receive(receiver, 3);
    for (const message of messages) await receiver.deferMessage(message);
    const other = bus.client().createReceiver(name);
    const deferred = await other.receiveDeferredMessages(messages.map((message) => message.sequenceNumber));
    assert.deepEqual(ids(deferred), ["m0", "m1", "m2"]);
    await other.abandonMessage(deferred[0]);
    await other.deadLetterMessage(deferred[1]);
    await other.completeMessage(deferred[2]);
    const left = await other.peekMessages(10);
    assert.deepEqual(left.map((message) => [message.messageId, message.state]), [["m0", "deferred"]]);
  });

  test("deferred messages can be received and deleted", async (bus) => {
    const { name, client, receiver } = await bus.stocked(numbered(1));
    const [message] = await receive(receiver, 1);
    await receiver.deferMessage(message);
    const deleting = client.createReceiver(name, { receiveMode: "receiveAndDelete" });
    assert.deepEqual(ids(await deleting.receiveDeferredMessages(message.sequenceNumber)), ["m0"]);
    assert.deepEqual(await receiver.peekMessages(10), []);
  });

  test("a dead-lettered message is in the dead-letter queue with reason, description and properties", async (bus) => {
    const { name, client, receiver } = await bus.stocked([
      { messageId: "m", body: { still: "here" }, subject: "s", applicationProperties: { kept: 1 } },
    ]);
    const [message] = await receive(receiver, 1);
    await receiver.deadLetterMessage(message, {
      deadLetterReason: "bad order",
      deadLetterErrorDescription: "no such article",
      article: 17,
    });
    await assertEmpty(receiver);
    const dead = client.createReceiver(name, { subQueueType: "deadLetter" });
    const [got] = await receive(dead, 1);
    assert.equal(got.deadLetterReason, "bad order");
    assert.equal(got.deadLetterErrorDescription, "no such article");
    assert.deepEqual([got.messageId, got.subject, got.body], ["m", "s", { still: "here" }]);
    assert.deepEqual(got.applicationProperties, {
      kept: 1,
      article: 17,
      DeadLetterReason: "bad order",
      DeadLetterErrorDescription: "no such article",
    });
    await dead.completeMessage(got);
    assert.deepEqual(await dead.peekMessages(10), []);
  });

  test("a renewed lock lasts longer", async (bus) => {
    const { name, receiver } = await bus.stocked(numbered(1), { LockDuration: "PT5S" });
    const [message] = await receive(receiver, 1);
    const until = message.lockedUntilUtc;
    await sleepUntil(until - 2_000);
    const renewed = await receiver.renewMessageLock(message);
    assert.ok(renewed - until > 2_000, `${renewed - until} ms`);
    await sleepUntil(until.getTime() + 1_000);
    await assertEmpty(bus.client().createReceiver(name));
    await receiver.completeMessage(message);
    assert.deepEqual(await receiver.peekMessages(10), []);
  });

  test("subscribe renews the lock of a message that takes longer than its lock lasts", async (bus) => {
    const { receiver } = await bus.stocked(numbered(1), { LockDuration: "PT5S" });
    const got = [];
    await new Promise((resolve, reject) => {
      receiver.subscribe({
        processMessage: async (message) => {
          got.push(message);
          await sleepUntil(Date.now() + 8_000);
          resolve();
        },
        processError: async ({ error }) => reject(error),
      });
    });
    await emptied(receiver, got[0]);
    assert.deepEqual(got.map((message) => message.deliveryCount), [0]);
  });

  test("a lock that expired is lost: complete fails, and the message comes again, counted", async (bus) => {
    const name = await bus.queue({ LockDuration: "PT5S" });
    const client = bus.client();
    await client.createSender(name).sendMessages(numbered(1));
    const receiver = client.createReceiver(name, { maxAutoLockRenewalDurationInMs: 0 });
    const [first] = await receive(receiver, 1);
    const [second] = await receive(bus.client().createReceiver(name), 1, 15_000);
    assert.deepEqual([second.messageId, second.deliveryCount], ["m0", 1]);
    await assert.rejects(receiver.completeMessage(first), { code: "MessageLockLost" });
    await assert.rejects(receiver.renewMessageLock(first), { code: "MessageLockLost" });
  });

  test("a change of the queue's settings drops the locks", async (bus) => {
    const { name, receiver } = await bus.stocked(numbered(2));
    const [first, second] = await receive(receiver, 2);
    await bus.update(name, { MaxDeliveryCount: 5 });
    await assert.rejects(receiver.completeMessage(first), { code: "MessageLockLost" });
    await assert.rejects(receiver.deadLetterMessage(second), { code: "MessageLockLost" });
    const again = await receive(bus.client().createReceiver(name), 2);
    assert.deepEqual(again.map((message) => [message.messageId, message.deliveryCount]), [["m0", 1], ["m1", 1]]);
  });

  test("a client that closed politely keeps its lock until it expires", async (bus) => {
    const { name, receiver, client } = await bus.stocked(numbered(1), { LockDuration: "PT5S" });
    const [message] = await receive(receiver, 1);
    await client.close();
    const other = bus.client().createReceiver(name);
    await assertEmpty(other);
    const [again] = await receive(other, 1, 15_000);
    assert.equal(again.deliveryCount, 1);
    assert.ok(Date.now() >= message.lockedUntilUtc - 200, "not before the lock ended");
  });
});
