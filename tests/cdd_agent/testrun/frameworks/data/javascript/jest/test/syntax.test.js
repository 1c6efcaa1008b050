test("x", () => { const = ;});
