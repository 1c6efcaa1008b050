describe("group", () => { test("ok", () => {}); }); describe("broken group", () => { undeclared(); test("y", () => {}); });
