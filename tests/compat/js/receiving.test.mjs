import assert from "node:assert/strict";
import { describe } from "node:test";
import { assertEmpty, emptied, ids, numbered, receive, test } from "./bus.mjs";

describe("receiving", { concurrency: true }, () => {
  test("a PeekLock receiver locks what it gets, and others get the rest", async (bus) => {
    const { name, client, receiver } = await bus.stocked(numbered(4));
    const other = client.createReceiver(name);
    assert.deepEqual(ids(await receive(receiver, 2)), ["m0", "m1"]);
    assert.deepEqual(ids(await receive(other, 2)), ["m2", "m3"]);
    await assertEmpty(receiver);
  });

  test("ReceiveAndDelete removes what it hands out", async (bus) => {
    const { name, client } = await bus.stocked(numbered(3));
    const receiver = client.createReceiver(name, { receiveMode: "receiveAndDelete" });
    const got = await receive(receiver, 3);
    assert.deepEqual(ids(got), ["m0", "m1", "m2"]);
    assert.equal(got[0].lockToken, undefined);
    assert.deepEqual(await receiver.peekMessages(10), []);
    await assertEmpty(receiver);
  });

  test("a receive that finds nothing returns in time and leaves the link usable", async (bus) => {
    const { sender, receiver } = await bus.stocked([]);
    for (let round = 0; round < 3; round += 1) {
      const started = Date.now();
      assert.deepEqual(await receiver.receiveMessages(5, { maxWaitTimeInMs: 200 }), []);
      assert.ok(Date.now() - started < 3_000);
      // The drain was answered, so the client did not have to close the link.
      assert.equal(receiver._batchingReceiver.isOpen(), true);
    }
    await sender.sendMessages(numbered(2));
    assert.deepEqual(ids(await receive(receiver, 2)), ["m0", "m1"]);
  });

  test("a receive that asks for more than there is returns what there is, and the drain loses nothing", async (bus) => {
    const { sender, receiver } = await bus.stocked(numbered(3));
    const got = await receiver.receiveMessages(10, { maxWaitTimeInMs: 2_000 });
    assert.deepEqual(ids(got), ["m0", "m1", "m2"]);
    assert.equal(receiver._batchingReceiver.isOpen(), true);
    // Credit that was drained must not swallow what comes next.
    await sender.sendMessages({ messageId: "next", body: 1 });
    const [next] = await receive(receiver, 1);
    assert.deepEqual([next.messageId, next.deliveryCount], ["next", 0]);
  });

  test("a waiting receiver gets a message as soon as it is sent", async (bus) => {
    const { sender, receiver } = await bus.stocked([]);
    const waiting = receiver.receiveMessages(1, { maxWaitTimeInMs: 20_000 });
    await assertEmpty(bus.client().createReceiver(receiver.entityPath));
    const sentAt = Date.now();
    await sender.sendMessages({ messageId: "m", body: 1 });
    assert.deepEqual(ids(await waiting), ["m"]);
    assert.ok(Date.now() - sentAt < 3_000);
  });

  test("subscribe hands over every message and completes it", async (bus) => {
    const { receiver } = await bus.stocked(numbered(20));
    const got = [];
    await new Promise((resolve, reject) => {
      receiver.subscribe({
        processMessage: async (message) => void (got.push(message) === 20 && resolve()),
        processError: async ({ error }) => reject(error),
      });
    });
    assert.deepEqual(ids(got), ids(numbered(20)));
    await emptied(receiver, got[0]);
  });

  test("subscribe with several calls at once goes on with messages that come later", async (bus) => {
    const { sender, receiver } = await bus.stocked([]);
    const got = [];
    let inside = 0;
    let most = 0;
    const done = new Promise((resolve, reject) => {
      const processMessage = async (message) => {
        inside += 1;
        most = Math.max(most, inside);
        await new Promise((next) => setTimeout(next, 20));
        inside -= 1;
        if (got.push(message) === 30) resolve();
      };
      receiver.subscribe({ processMessage, processError: async ({ error }) => reject(error) }, { maxConcurrentCalls: 5 });
    });
    await sender.sendMessages(numbered(30).slice(0, 15));
    await sender.sendMessages(numbered(30).slice(15));
    await done;
    assert.deepEqual(ids(got).sort(), ids(numbered(30)).sort());
    assert.ok(most > 1 && most <= 5, `${most} at once`);
    await emptied(receiver, got[0]);
  });

  test("a handler that throws abandons its message, which comes again", async (bus) => {
    const { receiver } = await bus.stocked(numbered(1));
    const got = [];
    await new Promise((resolve, reject) => {
      receiver.subscribe({
        processMessage: async (message) => {
          if (got.push(message) < 3) throw new Error("not yet");
          resolve();
        },
        processError: async ({ error }) => error.message === "not yet" || reject(error),
      });
    });
    assert.deepEqual(got.map((message) => message.deliveryCount), [0, 1, 2]);
    await emptied(receiver, got[0]);
  });

  test("a closed subscription takes no more messages", async (bus) => {
    const { sender, receiver } = await bus.stocked([]);
    const got = [];
    const subscription = receiver.subscribe({
      processMessage: async (message) => void got.push(message.messageId),
      processError: async ({ error }) => assert.fail(error),
    });
    await subscription.close();
    await sender.sendMessages(numbered(2));
    assert.deepEqual(ids(await receive(receiver, 2)), ["m0", "m1"]);
    assert.deepEqual(got, []);
  });

  test("an iterator yields messages one after the other", async (bus) => {
    const { receiver } = await bus.stocked(numbered(5));
    const got = [];
    for await (const message of receiver.getMessageIterator()) {
      got.push(message.messageId);
      await receiver.completeMessage(message);
      if (got.length === 5) break;
    }
    assert.deepEqual(got, ids(numbered(5)));
    await assertEmpty(receiver);
  });

  test("competing receivers share the messages and none gets one twice", async (bus) => {
    const { name } = await bus.stocked(numbered(60));
    const receivers = [0, 1, 2].map(() => bus.client().createReceiver(name, { receiveMode: "receiveAndDelete" }));
    const shares = await Promise.all(receivers.map((receiver) => receive(receiver, 20)));
    assert.deepEqual(ids(shares.flat()).sort(), ids(numbered(60)).sort());
  });
});
