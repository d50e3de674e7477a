// The official JavaScript administration client, unmodified, over HTTPS. Run by test_admin_javascript.py, which says
// where the broker is; NODE_EXTRA_CA_CERTS makes the client trust its certificate.
import assert from "node:assert/strict";
import { afterEach, test } from "node:test";

import { ServiceBusAdministrationClient } from "@azure/service-bus";

const connectionString = process.env.TWINBUS_CONNECTION_STRING;
const admin = new ServiceBusAdministrationClient(connectionString);
const UNLIMITED = "P10675199DT2H48M5.4775807S";

async function names(list) {
  const found = [];
  for await (const entity of list) found.push(entity.subscriptionName ?? entity.name);
  return found;
}

function withPolicy(keyName, key) {
  const endpoint = /Endpoint=[^;]*/.exec(connectionString)[0];
  return new ServiceBusAdministrationClient(`${endpoint};SharedAccessKeyName=${keyName};SharedAccessKey=${key}`);
}

function refused(code, statusCode, words = /TrackingId:/) {
  return (error) => {
    assert.equal(error.code, code);
    assert.equal(error.statusCode, statusCode);
    assert.match(error.message, words);
    return true;
  };
}

afterEach(async () => {
  for (const name of await names(admin.listQueues())) await admin.deleteQueue(name);
  for (const name of await names(admin.listTopics())) await admin.deleteTopic(name);
});

test("a new queue has the defaults of the service", async () => {
  await admin.createQueue("orders");
  const { _response, ...queue } = await admin.getQueue("orders");
  assert.deepEqual(queue, {
    name: "orders",
    forwardTo: undefined,
    userMetadata: undefined,
    lockDuration: "PT30S",
    maxSizeInMegabytes: 1024,
    maxDeliveryCount: 10,
    enablePartitioning: false,
    requiresSession: false,
    enableBatchedOperations: true,
    defaultMessageTimeToLive: UNLIMITED,
    autoDeleteOnIdle: UNLIMITED,
    requiresDuplicateDetection: false,
    duplicateDetectionHistoryTimeWindow: "PT10M",
    deadLetteringOnMessageExpiration: false,
    forwardDeadLetteredMessagesTo: undefined,
    authorizationRules: undefined,
    status: "Active",
    enableExpress: false,
    availabilityStatus: "Available",
    maxMessageSizeInKilobytes: undefined,
  });
});

test("every setting comes back, authorization rules in order with their keys", async () => {
  const settings = {
    lockDuration: "PT45S",
    maxSizeInMegabytes: 2048,
    maxDeliveryCount: 5,
    requiresSession: true,
    enableBatchedOperations: false,
    defaultMessageTimeToLive: "P2D",
    autoDeleteOnIdle: "PT1H",
    requiresDuplicateDetection: true,
    duplicateDetectionHistoryTimeWindow: "PT1M30.5S",
    deadLetteringOnMessageExpiration: true,
    userMetadata: "notes <&\"'> ünïcode",
    status: "SendDisabled",
    authorizationRules: [
      {
        claimType: "SharedAccessKey",
        accessRights: ["Manage", "Send", "Listen"],
        keyName: "zebra",
        primaryKey: "dlkp6NXf8UctgMs4OCIZh0l6HD0A3+vHyIPTrUxDpNE=",
        secondaryKey: "UR6yZn4t9mdVFDHFXEXWHFxIELs28adPU5592ZeIloc=",
      },
      {
        claimType: "SharedAccessKey",
        accessRights: ["Listen"],
        keyName: "ant",
        primaryKey: "UR6yZn4t9mdVFDHFXEXWHFxIELs28adPU5592ZeIloc=",
        secondaryKey: "dlkp6NXf8UctgMs4OCIZh0l6HD0A3+vHyIPTrUxDpNE=",
      },
    ],
  };
  await admin.createQueue("full", settings);
  const queue = await admin.getQueue("full");
  for (const [name, value] of Object.entries(settings)) assert.deepEqual(queue[name], value, name);
});

test("destinations of forwarding come back as addresses, and loops are refused", async () => {
  const host = /Endpoint=sb:\/\/([^/;]*)/.exec(connectionString)[1];
  await admin.createQueue("end");
  await admin.createQueue("source", { forwardTo: "end", forwardDeadLetteredMessagesTo: "end" });
  const source = await admin.getQueue("source");
  assert.equal(source.forwardTo, `sb://${host}/end`);
  assert.equal(source.forwardDeadLetteredMessagesTo, `sb://${host}/end`);
  await admin.updateQueue(source);
  await admin.createTopic("topic");
  await admin.createSubscription("topic", "all", { forwardTo: "source" });
  assert.equal((await admin.getSubscription("topic", "all")).forwardTo, `sb://${host}/source`);
  const end = await admin.getQueue("end");
  end.forwardTo = "topic";
  await assert.rejects(admin.updateQueue(end), /come back to 'end'/);
});

test("names may have slashes and ignore case", async () => {
  await admin.createQueue("Team/Orders.v1-x_y");
  assert.deepEqual(await names(admin.listQueues()), ["Team/Orders.v1-x_y"]);
  assert.equal((await admin.getQueue("team/orders.V1-X_Y")).name, "Team/Orders.v1-x_y");
  assert.equal(await admin.queueExists("TEAM/ORDERS.V1-X_Y"), true);
  assert.equal(await admin.queueExists("team"), false);
});

test("an update replaces what can be replaced", async () => {
  const queue = await admin.createQueue("updated", { userMetadata: "old" });
  await admin.updateQueue({ ...queue, lockDuration: "PT1M", userMetadata: undefined });
  const updated = await admin.getQueue("updated");
  assert.equal(updated.lockDuration, "PT1M");
  assert.equal(updated.userMetadata, undefined);
  assert.equal(updated.defaultMessageTimeToLive, UNLIMITED);
});

test("partitioning is shown, and cannot be changed", async () => {
  const queue = await admin.createQueue("partitioned", { enablePartitioning: true });
  assert.equal(queue.enablePartitioning, true);
  assert.equal((await admin.getQueue("partitioned")).availabilityStatus, "Available");
  await admin.createTopic("partitioned-topic", { enablePartitioning: true });
  assert.equal((await admin.getTopic("partitioned-topic")).enablePartitioning, true);
  await admin.updateQueue({ ...queue, maxDeliveryCount: 3 });
  await assert.rejects(admin.updateQueue({ ...queue, enablePartitioning: false }), { statusCode: 400 });
});

test("runtime properties of an unused queue are zero", async () => {
  await admin.createQueue("unused");
  const one = await admin.getQueueRuntimeProperties("unused");
  const listed = [];
  for await (const info of admin.listQueuesRuntimeProperties()) listed.push(info);
  assert.equal(listed.length, 1);
  for (const info of [one, listed[0]]) {
    assert.equal(info.name, "unused");
    assert.equal(info.sizeInBytes, 0);
    for (const kind of ["total", "active", "deadLetter", "scheduled", "transfer", "transferDeadLetter"]) {
      assert.equal(info[`${kind}MessageCount`], 0, kind);
    }
    assert.ok(Math.abs(Date.now() - info.createdAt.getTime()) < 60_000);
    assert.ok(Math.abs(Date.now() - info.modifiedAt.getTime()) < 60_000);
    assert.ok(!Number.isNaN(info.accessedAt.getTime()));
  }
});

test("lists are paged", async () => {
  const created = ["q0", "q1", "q2", "q3", "q4"];
  for (const name of created) await admin.createQueue(name);
  const pages = [];
  for await (const page of admin.listQueues().byPage({ maxPageSize: 2 })) pages.push(page.map((queue) => queue.name));
  assert.deepEqual(pages, [["q0", "q1"], ["q2", "q3"], ["q4"]]);
  const rest = [];
  for await (const page of admin.listQueues().byPage({ maxPageSize: 3, continuationToken: "3" })) {
    rest.push(...page.map((queue) => queue.name));
  }
  assert.deepEqual(rest, ["q3", "q4"]);
});

test("the namespace tells of itself", async () => {
  const properties = await admin.getNamespaceProperties();
  assert.equal(properties.name, process.env.TWINBUS_NAMESPACE);
  assert.equal(properties.messagingSku, "Standard");
  assert.ok(!Number.isNaN(properties.createdAt.getTime()));
});

test("a duplicate and a missing queue are told apart", async () => {
  await admin.createQueue("twice");
  await assert.rejects(admin.createQueue("Twice"), refused("MessageEntityAlreadyExistsError", 409));
  await assert.rejects(admin.getQueue("absent"), refused("MessageEntityNotFoundError", 404));
  await assert.rejects(admin.deleteQueue("absent"), refused("MessageEntityNotFoundError", 404));
  const queue = await admin.getQueue("twice");
  await assert.rejects(admin.updateQueue({ ...queue, name: "absent" }), refused("MessageEntityNotFoundError", 404));
});

test("bad names and values are refused with a sentence", async () => {
  for (const name of ["with space", 'quo"ted', "it's", "(x)"]) {
    await assert.rejects(admin.createQueue(name), refused("ServiceError", 400, /not an entity name/), name);
  }
  await assert.rejects(admin.createQueue("q", { lockDuration: "PT6M" }), refused("ServiceError", 400, /LockDuration/));
  await assert.rejects(
    admin.createQueue("q", { maxMessageSizeInKilobytes: 2048 }),
    refused("ServiceError", 400, /MaxMessageSizeInKilobytes/),
  );
  const authorizationRules = Array.from({ length: 13 }, (_, number) => ({
    claimType: "SharedAccessKey",
    accessRights: ["Send"],
    keyName: `r${number}`,
  }));
  await assert.rejects(admin.createQueue("q", { authorizationRules }), refused("ServiceError", 400, /At most 12/));
  const queue = await admin.createQueue("q");
  await assert.rejects(admin.updateQueue({ ...queue, requiresSession: true }), refused("ServiceError", 400, /RequiresSession/));
});

test("a wrong key and an unknown policy are refused", async () => {
  for (const [policy, key] of [["RootManageSharedAccessKey", "wrong"], ["nobody", "wrong"]]) {
    const stranger = withPolicy(policy, key);
    await assert.rejects(stranger.getNamespaceProperties(), refused("UnauthorizedRequestError", 401));
    await assert.rejects(stranger.createQueue("never"), refused("UnauthorizedRequestError", 401));
  }
  assert.deepEqual(await names(admin.listQueues()), []);
});

test("a queue's own policy opens what it grants", async () => {
  const rule = (keyName, accessRights) => ({
    claimType: "SharedAccessKey",
    keyName,
    accessRights,
    primaryKey: `${keyName}-key`,
    secondaryKey: "other",
  });
  const authorizationRules = [rule("manager", ["Manage", "Send", "Listen"]), rule("listener", ["Listen"])];
  await admin.createQueue("own", { authorizationRules });
  await admin.createQueue("foreign");
  const manager = withPolicy("manager", "manager-key");
  assert.equal((await manager.getQueue("own")).name, "own");
  await assert.rejects(manager.getQueue("foreign"), refused("UnauthorizedRequestError", 401));
  await assert.rejects(names(manager.listQueues()), refused("UnauthorizedRequestError", 401));
  const listener = withPolicy("listener", "listener-key");
  await assert.rejects(listener.getQueue("own"), refused("UnauthorizedRequestError", 401, /Manage right/));
});

test("a new topic has the defaults of the service", async () => {
  await admin.createTopic("Team/Orders");
  const { _response, ...topic } = await admin.getTopic("team/orders");
  assert.deepEqual(topic, {
    name: "Team/Orders",
    maxSizeInMegabytes: 1024,
    enablePartitioning: false,
    supportOrdering: true,
    enableBatchedOperations: true,
    defaultMessageTimeToLive: UNLIMITED,
    autoDeleteOnIdle: UNLIMITED,
    requiresDuplicateDetection: false,
    duplicateDetectionHistoryTimeWindow: "PT10M",
    authorizationRules: undefined,
    status: "Active",
    userMetadata: undefined,
    enableExpress: false,
    availabilityStatus: "Available",
    maxMessageSizeInKilobytes: undefined,
  });
  assert.deepEqual(await names(admin.listTopics()), ["Team/Orders"]);
  assert.deepEqual(await names(admin.listQueues()), []);
  assert.equal(await admin.topicExists("TEAM/ORDERS"), true);
  assert.equal(await admin.topicExists("team"), false);
});

test("a topic's settings are replaced, and queues share its names", async () => {
  const topic = await admin.createTopic("t", { userMetadata: "old", requiresDuplicateDetection: true });
  const updated = await admin.updateTopic({ ...topic, userMetadata: undefined, defaultMessageTimeToLive: "P1D", status: "SendDisabled" });
  assert.equal(updated.userMetadata, undefined);
  assert.equal(updated.defaultMessageTimeToLive, "P1D");
  assert.equal(updated.status, "SendDisabled");
  assert.equal(updated.requiresDuplicateDetection, true);
  await assert.rejects(admin.createQueue("T"), refused("MessageEntityAlreadyExistsError", 409));
  await assert.rejects(admin.createTopic("T"), refused("MessageEntityAlreadyExistsError", 409));
  await assert.rejects(admin.updateTopic({ ...topic, requiresDuplicateDetection: false }), refused("ServiceError", 400, /RequiresDuplicateDetection/));
  const queue = await admin.createQueue("q");
  await assert.rejects(admin.updateTopic({ ...topic, name: "q" }), refused("MessageEntityNotFoundError", 404));
  await assert.rejects(admin.updateQueue({ ...queue, name: "t" }), refused("MessageEntityNotFoundError", 404));
  await assert.rejects(admin.createSubscription("q", "s"), refused("MessageEntityNotFoundError", 404));
  await assert.rejects(names(admin.listSubscriptions("q")), refused("MessageEntityNotFoundError", 404));
});

test("a new subscription has the defaults of the service and one rule", async () => {
  await admin.createTopic("Team/Topic");
  await admin.createSubscription("team/topic", "Sub");
  const { _response, ...subscription } = await admin.getSubscription("TEAM/TOPIC", "SUB");
  assert.deepEqual(subscription, {
    subscriptionName: "Sub",
    topicName: "Team/Topic",
    lockDuration: "PT30S",
    maxDeliveryCount: 10,
    requiresSession: false,
    enableBatchedOperations: true,
    defaultMessageTimeToLive: UNLIMITED,
    autoDeleteOnIdle: UNLIMITED,
    deadLetteringOnMessageExpiration: false,
    deadLetteringOnFilterEvaluationExceptions: true,
    forwardDeadLetteredMessagesTo: undefined,
    forwardTo: undefined,
    userMetadata: undefined,
    status: "Active",
    availabilityStatus: "Available",
  });
  assert.deepEqual(await names(admin.listSubscriptions("Team/Topic")), ["Sub"]);
  const { _response: _, ...rule } = await admin.getRule("Team/Topic", "Sub", "$Default");
  assert.deepEqual(rule, {
    name: "$Default",
    filter: { sqlExpression: "1=1", sqlParameters: undefined },
    action: { sqlExpression: undefined, sqlParameters: undefined },
  });
  assert.equal(await admin.subscriptionExists("Team/Topic", "sub"), true);
  assert.equal(await admin.ruleExists("Team/Topic", "sub", "absent"), false);
});

test("a subscription's settings are replaced, and its first rule may be given", async () => {
  await admin.createTopic("t");
  const defaultRuleOptions = {
    name: "first",
    filter: { subject: "s", applicationProperties: { a: 1 } },
    action: { sqlExpression: "SET b = @p", sqlParameters: { "@p": 2 } },
  };
  const created = await admin.createSubscription("t", "s", { lockDuration: "PT13S", requiresSession: true, defaultRuleOptions });
  const updated = await admin.updateSubscription({ ...created, lockDuration: "PT1M", maxDeliveryCount: 3 });
  assert.deepEqual([updated.lockDuration, updated.maxDeliveryCount, updated.requiresSession], ["PT1M", 3, true]);
  assert.deepEqual(await names(admin.listRules("t", "s")), ["first"]);
  const rule = await admin.getRule("t", "s", "first");
  assert.equal(rule.filter.subject, "s");
  assert.deepEqual(rule.filter.applicationProperties, { a: 1 });
  assert.deepEqual(rule.action, defaultRuleOptions.action);
  await assert.rejects(admin.createSubscription("t", "S"), refused("MessageEntityAlreadyExistsError", 409));
  await assert.rejects(admin.createSubscription("t", "a b"), refused("ServiceError", 400));
  await assert.rejects(admin.updateSubscription({ ...created, requiresSession: false }), refused("ServiceError", 400, /RequiresSession/));
  await assert.rejects(admin.getSubscription("t", "absent"), refused("MessageEntityNotFoundError", 404));
});

test("filters and actions come back with their values", async () => {
  await admin.createTopic("t");
  await admin.createSubscription("t", "s");
  const date = new Date("2024-02-29T12:30:15.250Z");
  const values = { "@text": "<&\"'> ünïcode", "@number": 2.5, "@whole": 7, "@yes": true, "@no": false, "@date": date };
  const properties = Object.fromEntries(Object.entries(values).map(([name, value]) => [name.slice(1), value]));
  const action = { sqlExpression: "SET a = @text; REMOVE b", sqlParameters: values };
  const filters = {
    sql: { sqlExpression: "a = @text AND sys.Label <> 'x'", sqlParameters: values },
    one: { sqlExpression: "a = @p", sqlParameters: { "@p": 1 } },
    correlation: {
      correlationId: "1",
      subject: "2",
      to: "3",
      replyTo: "4",
      replyToSessionId: "5",
      sessionId: "6",
      messageId: "7",
      contentType: "8",
      applicationProperties: properties,
    },
  };
  for (const [name, filter] of Object.entries(filters)) {
    assert.deepEqual((await admin.createRule("t", "s", name, filter, action)).filter, filter);
  }
  for await (const rule of admin.listRules("t", "s")) {
    if (rule.name === "$Default") continue;
    assert.deepEqual(rule.filter, filters[rule.name]);
    assert.deepEqual(rule.action, action);
  }
});

test("rules are updated, paged and deleted", async () => {
  await admin.createTopic("t");
  await admin.createSubscription("t", "s");
  for (const name of ["a", "b", "c"]) await admin.createRule("t", "s", name, { sqlExpression: "x = 1" });
  const pages = [];
  for await (const page of admin.listRules("t", "s").byPage({ maxPageSize: 2 })) pages.push(page.map((rule) => rule.name));
  assert.deepEqual(pages, [["$Default", "a"], ["b", "c"]]);
  const rule = await admin.getRule("t", "s", "A");
  const updated = await admin.updateRule("t", "s", { ...rule, filter: { subject: "x" } });
  assert.deepEqual([updated.name, updated.filter.subject], ["a", "x"]);
  await admin.deleteRule("t", "s", "$Default");
  assert.deepEqual(await names(admin.listRules("t", "s")), ["a", "b", "c"]);
  await assert.rejects(admin.updateRule("t", "s", { ...rule, name: "absent" }), refused("MessageEntityNotFoundError", 404));
  await assert.rejects(admin.deleteRule("t", "s", "absent"), refused("MessageEntityNotFoundError", 404));
  await assert.rejects(admin.createRule("t", "s", "a", { subject: "x" }), refused("MessageEntityAlreadyExistsError", 409));
  await assert.rejects(admin.createRule("t", "s", "d", { sqlExpression: "x = = 1" }), refused("ServiceError", 400, /position/));
});

test("runtime properties of an unused topic and its subscriptions", async () => {
  await admin.createTopic("t");
  for (const name of ["a", "b", "c"]) await admin.createSubscription("t", name);
  const topics = [await admin.getTopicRuntimeProperties("t")];
  for await (const info of admin.listTopicsRuntimeProperties()) topics.push(info);
  assert.equal(topics.length, 2);
  for (const info of topics) {
    assert.deepEqual([info.name, info.subscriptionCount, info.sizeInBytes, info.scheduledMessageCount], ["t", 3, 0, 0]);
    assert.ok(Math.abs(Date.now() - info.createdAt.getTime()) < 60_000);
  }
  const one = await admin.getSubscriptionRuntimeProperties("t", "a");
  assert.deepEqual([one.topicName, one.subscriptionName, one.totalMessageCount], ["t", "a", 0]);
  const pages = [];
  for await (const page of admin.listSubscriptionsRuntimeProperties("t").byPage({ maxPageSize: 2 })) {
    pages.push(page.map((info) => info.subscriptionName));
  }
  assert.deepEqual(pages, [["a", "b"], ["c"]]);
  await admin.deleteSubscription("t", "A");
  assert.deepEqual(await names(admin.listSubscriptions("t")), ["b", "c"]);
  await admin.deleteTopic("t");
  await assert.rejects(names(admin.listSubscriptions("t")), refused("MessageEntityNotFoundError", 404));
  assert.equal(await admin.subscriptionExists("t", "b"), false);
});
