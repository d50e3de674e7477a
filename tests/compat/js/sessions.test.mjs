import assert from "node:assert/strict";
import { describe } from "node:test";
import { assertEmpty, connectionString, emptied, ids, numbered, receive, sleepUntil, test } from "./bus.mjs";

const SESSIONS = { RequiresSession: true };
const inSession = (sessionId, count) => numbered(count, { sessionId });

describe("sessions", { concurrency: true }, () => {
  test("a named session is received in order, and only that session", async (bus) => {
    const { name, client } = await bus.stocked([...inSession("a", 3), ...inSession("b", 3)], { RequiresSession: true });
    const receiver = await client.acceptSession(name, "a");
    assert.equal(receiver.sessionId, "a");
    assert.ok(receiver.sessionLockedUntilUtc > new Date());
    const got = await receive(receiver, 3);
    assert.deepEqual(ids(got), ["m0", "m1", "m2"]);
    assert.ok(got.every((message) => message.sessionId === "a"));
    for (const message of got) await receiver.completeMessage(message);
    await assertEmpty(receiver);
  });

  test("the next free session is the one that waited longest", async (bus) => {
    const { name, client } = await bus.stocked([...inSession("first", 1), ...inSession("second", 1)], SESSIONS);
    const one = await client.acceptNextSession(name);
    const two = await client.acceptNextSession(name);
    assert.deepEqual([one.sessionId, two.sessionId], ["first", "second"]);
    assert.deepEqual(ids(await receive(two, 1)), ["m0"]);
  });

  test("a session that somebody holds is refused, and is free once its receiver is closed", async (bus) => {
    const { name, client } = await bus.stocked(inSession("s", 1), SESSIONS);
    const holder = await client.acceptSession(name, "s");
    await assert.rejects(bus.client().acceptSession(name, "s"), { code: "SessionCannotBeLocked" });
    await holder.close();
    const next = await bus.client().acceptSession(name, "s");
    assert.deepEqual(ids(await receive(next, 1)), ["m0"]);
  });

  test("what a closed session receiver had locked is available at once, uncounted", async (bus) => {
    const { name, client } = await bus.stocked(inSession("s", 2), SESSIONS);
    const holder = await client.acceptSession(name, "s");
    await receive(holder, 2);
    await holder.close();
    const next = await client.acceptSession(name, "s");
    const got = await receive(next, 2);
    assert.deepEqual(got.map((message) => [message.messageId, message.deliveryCount]), [["m0", 0], ["m1", 0]]);
  });

  test("whoever asks for the next session waits for one", async (bus) => {
    const { name, sender } = await bus.stocked([], SESSIONS);
    const waiting = bus.client().acceptNextSession(name);
    await new Promise((resolve) => setTimeout(resolve, 300));
    await sender.sendMessages(inSession("late", 1));
    const receiver = await waiting;
    assert.equal(receiver.sessionId, "late");
    assert.deepEqual(ids(await receive(receiver, 1)), ["m0"]);
  });

  test("asking for the next session when there is none ends with a time-out", async (bus) => {
    const { name } = await bus.stocked([], SESSIONS);
    const options = { retryOptions: { maxRetries: 0, timeoutInMs: 2_000 } };
    const started = Date.now();
    await assert.rejects(bus.client(connectionString, options).acceptNextSession(name), { code: "ServiceTimeout" });
    assert.ok(Date.now() - started < 10_000);
  });

  test("a session keeps its state over its receivers, until it is cleared", async (bus) => {
    const { name, client } = await bus.stocked(inSession("s", 1), SESSIONS);
    const first = await client.acceptSession(name, "s");
    assert.equal(await first.getSessionState(), null);
    await first.setSessionState({ step: 3, text: "ü" });
    assert.deepEqual(await first.getSessionState(), { step: 3, text: "ü" });
    await first.close();
    const second = await client.acceptSession(name, "s");
    assert.deepEqual(await second.getSessionState(), { step: 3, text: "ü" });
    await second.setSessionState(null);
    assert.equal(await second.getSessionState(), null);
  });

  test("a renewed session lock lasts longer", async (bus) => {
    const { name, client } = await bus.stocked(inSession("s", 1), { LockDuration: "PT5S", ...SESSIONS });
    const receiver = await client.acceptSession(name, "s", { maxAutoLockRenewalDurationInMs: 0 });
    const until = receiver.sessionLockedUntilUtc;
    const [message] = await receive(receiver, 1);
    await sleepUntil(until - 2_000);
    const renewed = await receiver.renewSessionLock();
    assert.ok(renewed - until > 2_000, `${renewed - until} ms`);
    await sleepUntil(until.getTime() + 1_000);
    await receiver.completeMessage(message);
  });

  test("a session lock that expired is lost", async (bus) => {
    const { name, client } = await bus.stocked(inSession("s", 1), { LockDuration: "PT5S", ...SESSIONS });
    const receiver = await client.acceptSession(name, "s", { maxAutoLockRenewalDurationInMs: 0 });
    const [message] = await receive(receiver, 1);
    await sleepUntil(receiver.sessionLockedUntilUtc.getTime() + 1_000);
    await assert.rejects(receiver.completeMessage(message), { code: "SessionLockLost" });
    const next = await bus.client().acceptSession(name, "s");
    const [again] = await receive(next, 1);
    assert.equal(again.deliveryCount, 1);
  });

  test("messages of a session are abandoned, deferred, dead-lettered and completed", async (bus) => {
    const { name, client } = await bus.stocked(inSession("s", 4), SESSIONS);
    const receiver = await client.acceptSession(name, "s");
    const [a, b, c, d] = await receive(receiver, 4);
    await receiver.completeMessage(a);
    await receiver.deferMessage(b);
    await receiver.deadLetterMessage(c, { deadLetterReason: "r", deadLetterErrorDescription: "d" });
    await receiver.abandonMessage(d);
    const [again] = await receive(receiver, 1);
    assert.deepEqual([again.messageId, again.deliveryCount], ["m3", 1]);
    const [deferred] = await receiver.receiveDeferredMessages(b.sequenceNumber);
    assert.equal(deferred.messageId, "m1");
    await receiver.completeMessage(deferred);
    const [dead] = await receive(client.createReceiver(name, { subQueueType: "deadLetter" }), 1);
    assert.deepEqual([dead.messageId, dead.sessionId, dead.deadLetterReason], ["m2", "s", "r"]);
  });

  test("peek in a session shows that session only", async (bus) => {
    const { name, client } = await bus.stocked([...inSession("a", 2), ...inSession("b", 1)], SESSIONS);
    const receiver = await client.acceptSession(name, "b");
    const seen = await receiver.peekMessages(10);
    assert.deepEqual(seen.map((message) => [message.sessionId, message.messageId]), [["b", "m0"]]);
  });

  test("subscribe in a session hands over its messages in order", async (bus) => {
    const { name, client } = await bus.stocked(inSession("s", 10), SESSIONS);
    const receiver = await client.acceptSession(name, "s");
    const got = [];
    await new Promise((resolve, reject) => {
      receiver.subscribe({
        processMessage: async (message) => void (got.push(message) === 10 && resolve()),
        processError: async ({ error }) => reject(error),
      });
    });
    assert.deepEqual(ids(got), ids(numbered(10)));
    await emptied(receiver, got[0]);
  });

  test("a session can be received and deleted", async (bus) => {
    const { name, client } = await bus.stocked(inSession("s", 3), SESSIONS);
    const receiver = await client.acceptSession(name, "s", { receiveMode: "receiveAndDelete" });
    assert.deepEqual(ids(await receive(receiver, 3)), ["m0", "m1", "m2"]);
    assert.deepEqual(await receiver.peekMessages(10), []);
  });

  test("many sessions are received at the same time, each in order", async (bus) => {
    const sessions = Array.from({ length: 8 }, (_, n) => `s${n}`);
    const mixed = numbered(10).flatMap((message) => sessions.map((sessionId) => ({ ...message, sessionId })));
    const { name } = await bus.stocked(mixed, SESSIONS);
    const client = bus.client();
    await Promise.all(
      sessions.map(async (sessionId) => {
        const receiver = await client.acceptSession(name, sessionId);
        assert.deepEqual(ids(await receive(receiver, 10)), ids(numbered(10)));
      }),
    );
  });
});
