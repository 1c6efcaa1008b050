it("x", () => { const = ;});
