// A reporter for node's test runner: one line of JSON for each finished test, for test_javascript.py to read.
export default async function* report(source) {
  for await (const { type, data } of source) {
    if ((type === "test:pass" || type === "test:fail") && data.details.type !== "suite") {
      const error = data.details.error;
      const shown = error && (error.cause?.stack ?? error.cause ?? error.stack);
      yield `${JSON.stringify({ name: data.name, passed: type === "test:pass", error: shown && String(shown) })}\n`;
    }
  }
}
