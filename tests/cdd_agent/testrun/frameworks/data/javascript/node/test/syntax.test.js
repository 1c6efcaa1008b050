import { it, describe } from 'node:test';
it("x", () => { const = ;});
