undeclared();
it("x", () => {});
