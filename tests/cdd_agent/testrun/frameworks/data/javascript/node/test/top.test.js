import { it, describe } from 'node:test';
undeclared();
it("x", () => {});
