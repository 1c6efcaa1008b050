import { it, describe } from 'node:test';
it("one", () => {}); it("two", () => { process.exit(0); }); it("three", () => {});
