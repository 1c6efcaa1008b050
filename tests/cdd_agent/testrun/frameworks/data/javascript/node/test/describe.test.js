import { it, describe } from 'node:test';
it("before top", () => {}); it("fails before", () => {throw new Error("x")}); describe("group", () => { undeclared(); it("y", () => {}); });
