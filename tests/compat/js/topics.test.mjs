import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { describe } from "node:test";
import { assertEmpty, connectionString, emptied, ids, numbered, receive, test } from "./bus.mjs";

const NAMESPACE = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect";
const INSTANCE = "http://www.w3.org/2001/XMLSchema-instance";

async function put(path, element, settings) {
  const elements = Object.entries(settings).map(([key, value]) => `<${key}>${value}</${key}>`);
  const description = `<${element} xmlns="${NAMESPACE}" xmlns:i="${INSTANCE}">${elements.join("")}</${element}>`;
  const answer = await fetch(`${process.env.TWINBUS_HTTP}/${path}?api-version=2021-05`, {
    method: "PUT",
    headers: { Authorization: process.env.TWINBUS_HTTP_TOKEN, "Content-Type": "application/atom+xml" },
    body: `<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml">${description}</content></entry>`,
  });
  assert.ok(answer.ok, `${answer.status}: ${await answer.text()}`);
}

/** A new topic with subscriptions, whose settings are given by name. */
async function topic(subscriptions, settings = {}) {
  const name = `js-${randomUUID()}`;
  await put(name, "TopicDescription", settings);
  for (const [subscription, own] of Object.entries(subscriptions)) {
    await put(`${name}/Subscriptions/${subscription}`, "SubscriptionDescription", own);
  }
  return name;
}

async function rulesOf(manager) {
  const rules = {};
  for await (const rule of manager.listRules()) {
    if (rule === undefined) break; // The client's way of listing no rule at all.
    rules[rule.name] = { filter: JSON.parse(JSON.stringify(rule.filter)), action: rule.action.sqlExpression };
  }
  return rules;
}

/** What the subscription "s" gets of messages that are sent now: the name of the rule that made it, or its own id. */
async function copies(client, name, messages, count) {
  await client.createSender(name).sendMessages(messages);
  const receiver = client.createReceiver(name, "s", { receiveMode: "receiveAndDelete" });
  const got = await receive(receiver, count);
  await assertEmpty(receiver);
  await receiver.close();
  return got.map((message) => message.applicationProperties?.RuleName ?? message.messageId).sort();
}

describe("topics", { concurrency: true }, () => {
  test("a message reaches each subscription and is settled there alone", async (bus) => {
    const name = await topic({ a: {}, b: {} });
    const client = bus.client();
    await client.createSender(name).sendMessages({
      messageId: "m",
      body: { answer: 42 },
      subject: "subject",
      applicationProperties: { colour: "red", size: 7 },
    });
    const [a, b] = [client.createReceiver(name, "a"), client.createReceiver(name, "b")];
    for (const receiver of [a, b]) {
      const [message] = await receive(receiver, 1);
      assert.deepEqual([message.messageId, message.body, message.subject], ["m", { answer: 42 }, "subject"]);
      assert.deepEqual(message.applicationProperties, { colour: "red", size: 7 });
      assert.equal(message.sequenceNumber.toNumber(), 1);
      if (receiver === a) await receiver.completeMessage(message);
      else await receiver.abandonMessage(message, { colour: "blue" });
    }
    await assertEmpty(a);
    const [again] = await receive(b, 1);
    assert.deepEqual([again.deliveryCount, again.applicationProperties.colour], [1, "blue"]);
  });

  test("arrays and batches reach every subscription in order", async (bus) => {
    const name = await topic({ a: {}, b: {} });
    const client = bus.client();
    const sender = client.createSender(name);
    const batch = await sender.createMessageBatch();
    for (const message of numbered(10)) assert.ok(batch.tryAddMessage(message));
    await sender.sendMessages(batch);
    await sender.sendMessages(numbered(13).slice(10));
    for (const subscription of ["a", "b"]) {
      assert.deepEqual(ids(await receive(client.createReceiver(name, subscription), 13)), ids(numbered(13)));
    }
  });

  test("a subscription hands over what is published while it is subscribed to", async (bus) => {
    const name = await topic({ s: {} });
    const client = bus.client();
    const receiver = client.createReceiver(name, "s");
    const got = [];
    const all = new Promise((resolve, reject) => {
      receiver.subscribe({
        processMessage: async (message) => void (got.push(message) === 10 && resolve()),
        processError: async ({ error }) => reject(error),
      });
    });
    const sender = client.createSender(name);
    for (const message of numbered(10)) await sender.sendMessages(message);
    await all;
    assert.deepEqual(ids(got), ids(numbered(10)));
    await emptied(receiver, got[0]);
  });

  test("peek, defer and dead-letter work in a subscription of its own", async (bus) => {
    const name = await topic({ a: {}, b: {} });
    const client = bus.client();
    await client.createSender(name).sendMessages(numbered(3));
    const receiver = client.createReceiver(name, "a");
    const [first, second] = await receive(receiver, 2);
    await receiver.deferMessage(first);
    await receiver.deadLetterMessage(second, { deadLetterReason: "why", deadLetterErrorDescription: "therefore" });
    assert.deepEqual(
      (await receiver.peekMessages(5)).map(({ messageId, state }) => [messageId, state]),
      [["m0", "deferred"], ["m2", "active"]],
    );
    const [deferred] = await receiver.receiveDeferredMessages(first.sequenceNumber);
    await receiver.completeMessage(deferred);
    const [dead] = await receive(client.createReceiver(name, "a", { subQueueType: "deadLetter" }), 1);
    assert.deepEqual([dead.messageId, dead.deadLetterReason], ["m1", "why"]);
    assert.deepEqual(ids(await client.createReceiver(name, "b").peekMessages(5)), ids(numbered(3)));
  });

  test("sessions of a subscription are accepted by name and as the next one", async (bus) => {
    const name = await topic({ s: { RequiresSession: true } });
    const client = bus.client();
    const sender = client.createSender(name);
    await sender.sendMessages(numbered(2, { sessionId: "one" }));
    await sender.sendMessages({ messageId: "other", body: 1, sessionId: "two" });
    await sender.sendMessages({ messageId: "alone", body: 1 });
    const one = await client.acceptSession(name, "s", "one");
    await one.setSessionState({ seen: 2 });
    for (const message of await receive(one, 2)) await one.completeMessage(message);
    const next = await client.acceptNextSession(name, "s");
    assert.equal(next.sessionId, "two");
    assert.deepEqual(ids(await receive(next, 1)), ["other"]);
    assert.deepEqual(await one.getSessionState(), { seen: 2 });
    const [dead] = await receive(client.createReceiver(name, "s", { subQueueType: "deadLetter" }), 1);
    assert.deepEqual([dead.messageId, dead.deadLetterReason], ["alone", "Session id is null."]);
  });

  test("scheduled messages come to the subscriptions in time, and cancelled ones never", async (bus) => {
    const name = await topic({ a: {}, b: {} });
    const client = bus.client();
    const sender = client.createSender(name);
    const due = new Date(Date.now() + 1_500);
    const [, second] = await sender.scheduleMessages(numbered(2), due);
    await sender.cancelScheduledMessages(second);
    for (const subscription of ["a", "b"]) {
      const receiver = client.createReceiver(name, subscription);
      const [message] = await receive(receiver, 1);
      assert.equal(message.messageId, "m0");
      assert.ok(message.enqueuedTimeUtc.getTime() >= due.getTime());
      await assertEmpty(receiver);
    }
    await assert.rejects(sender.cancelScheduledMessages(second), { code: "MessageNotFound" });
  });

  test("nobody receives from a topic or sends to a subscription", async (bus) => {
    const name = await topic({ s: {} });
    const client = bus.client();
    await assert.rejects(client.createReceiver(name).receiveMessages(1, { maxWaitTimeInMs: 1_000 }), /subscriptions/);
    const sender = client.createSender(`${name}/Subscriptions/s`);
    await assert.rejects(sender.sendMessages({ body: 1 }), /not to its subscription/);
    const missing = client.createReceiver(name, "missing");
    await assert.rejects(missing.receiveMessages(1, { maxWaitTimeInMs: 1_000 }), { code: "MessagingEntityNotFound" });
  });

  test("the default rule is listed, deleted and replaced", async (bus) => {
    const name = await topic({ s: {} });
    const client = bus.client();
    const manager = client.createRuleManager(name, "s");
    assert.deepEqual(await rulesOf(manager), { $Default: { filter: { sqlExpression: "1=1" }, action: undefined } });
    await manager.deleteRule("$Default");
    assert.deepEqual(await rulesOf(manager), {});
    await client.createSender(name).sendMessages({ messageId: "lost", body: 1 });
    await manager.createRule("$Default", { sqlExpression: "1=1" });
    assert.deepEqual(await copies(client, name, numbered(1), 1), ["m0"]);
  });

  test("rules with sql and correlation filters and with actions are listed as they were given", async (bus) => {
    const name = await topic({ s: {} });
    const manager = bus.client().createRuleManager(name, "s");
    const conditions = {
      correlationId: "c",
      messageId: "m",
      to: "t",
      replyTo: "r",
      subject: "l",
      sessionId: "s",
      replyToSessionId: "rs",
      contentType: "text/plain",
      applicationProperties: { text: "x", whole: 7, real: 2.5, flag: true },
    };
    await manager.createRule("sql", { sqlExpression: "colour = 'red' AND size > 5" }, { sqlExpression: "SET a = 1" });
    await manager.createRule("correlation", conditions);
    await manager.createRule("subject", { subject: "only" }, { sqlExpression: "REMOVE b" });
    const rules = await rulesOf(manager);
    assert.deepEqual(Object.keys(rules), ["$Default", "sql", "correlation", "subject"]);
    assert.deepEqual(rules.sql, { filter: { sqlExpression: "colour = 'red' AND size > 5" }, action: "SET a = 1" });
    assert.deepEqual(rules.correlation, { filter: conditions, action: undefined });
    assert.deepEqual([rules.subject.filter.subject, rules.subject.action], ["only", "REMOVE b"]);
  });

  test("rules are listed in pages", async (bus) => {
    const name = await topic({ s: {} });
    const manager = bus.client().createRuleManager(name, "s");
    const names = ["$Default"];
    for (let n = 0; n < 7; n += 1) {
      names.push(`r${n}`);
      await manager.createRule(`r${n}`, { sqlExpression: `n = ${n}` });
    }
    const pages = [];
    for await (const page of manager.listRules().byPage({ maxPageSize: 3 })) pages.push(page.map((rule) => rule.name));
    assert.deepEqual(pages.flat(), names);
    assert.deepEqual(pages[0], names.slice(0, 3));
  });

  test("created rules choose the messages and change their copies at once", async (bus) => {
    const name = await topic({ s: {} });
    const client = bus.client();
    const manager = client.createRuleManager(name, "s");
    await manager.deleteRule("$Default");
    await manager.createRule("red", { sqlExpression: "colour = 'red' AND sys.Label = 'order'" });
    await manager.createRule("also", { applicationProperties: { colour: "red", size: 7 } });
    const message = { body: 1, subject: "order", applicationProperties: { colour: "red", size: 7 } };
    const blue = { ...message, messageId: "blue", applicationProperties: { colour: "blue", size: 7 } };
    assert.deepEqual(await copies(client, name, [{ ...message, messageId: "red" }, blue], 1), ["red"]);
    await manager.createRule("twice", { subject: "order" }, { sqlExpression: "SET size = size * 2" });
    assert.deepEqual(await copies(client, name, [{ ...message, messageId: "red" }, blue], 3), ["red", "twice", "twice"]);
    await manager.deleteRule("red");
    await manager.deleteRule("also");
    await client.createSender(name).sendMessages(blue);
    const [copy] = await receive(client.createReceiver(name, "s"), 1);
    assert.deepEqual(copy.applicationProperties, { colour: "blue", size: 14, RuleName: "twice" });
  });

  test("rules that cannot be are refused with their reason", async (bus) => {
    const name = await topic({ s: {} });
    const manager = bus.client().createRuleManager(name, "s");
    await manager.createRule("there", { sqlExpression: "a = 1" });
    await assert.rejects(manager.createRule("THERE", { sqlExpression: "a = 2" }), {
      code: "MessagingEntityAlreadyExists",
    });
    await assert.rejects(manager.deleteRule("missing"), { code: "MessagingEntityNotFound" });
    await assert.rejects(manager.createRule("wrong", { sqlExpression: "a = " }), /position 4/);
    await assert.rejects(manager.createRule("wrong", { sqlExpression: "a = 1" }, { sqlExpression: "SET" }), /position 3/);
    await assert.rejects(manager.createRule("not a name", { sqlExpression: "a = 1" }), /not a rule name/);
    assert.deepEqual(Object.keys(await rulesOf(manager)), ["$Default", "there"]);
  });

  test("a policy of the topic with the right to listen may manage rules, one to send may not", async (bus) => {
    const policy = (keyName, right) =>
      `<AuthorizationRule i:type="SharedAccessAuthorizationRule"><ClaimType>SharedAccessKey</ClaimType>` +
      `<ClaimValue>None</ClaimValue><Rights><AccessRights>${right}</AccessRights></Rights><KeyName>${keyName}</KeyName>` +
      `<PrimaryKey>a-key-of-the-topic</PrimaryKey><SecondaryKey>another-key</SecondaryKey></AuthorizationRule>`;
    const policies = policy("listener", "Listen") + policy("sender", "Send");
    const name = await topic({ s: {} }, { AuthorizationRules: policies });
    const client = (keyName) =>
      bus.client(
        connectionString.replace(
          /SharedAccessKeyName=[^;]*;SharedAccessKey=[^;]*/,
          `SharedAccessKeyName=${keyName};SharedAccessKey=a-key-of-the-topic`,
        ),
      );
    const manager = client("listener").createRuleManager(name, "s");
    await manager.createRule("r", { sqlExpression: "a = 1" });
    await manager.deleteRule("$Default");
    assert.deepEqual(Object.keys(await rulesOf(manager)), ["r"]);
    const refused = client("sender").createRuleManager(name, "s");
    await assert.rejects(refused.deleteRule("r"), { code: "UnauthorizedAccess" });
    assert.deepEqual(Object.keys(await rulesOf(manager)), ["r"]);
  });
});
