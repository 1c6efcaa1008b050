test("x > y", () => {});
test("inside", () => { expect(() => ({}).put()).toThrow(/full/); });
test("class", () => { expect(() => { throw new TypeError("a"); }).toThrow(RangeError); });
test("node assert", () => { require("assert").strictEqual(1, 2); });
test("node throws", () => { require("assert").throws(() => {}); });
test("rejects", async () => { await expect(Promise.resolve(1)).rejects.toThrow(); });
expect.extend({ toBeOdd(n) { return { pass: n % 2 === 1, message: () => `${n} is even` }; } });
test("custom", () => { expect(2).toBeOdd(); });
