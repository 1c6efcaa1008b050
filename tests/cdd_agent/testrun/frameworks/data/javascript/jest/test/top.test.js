undeclared();
test("x", () => {});
