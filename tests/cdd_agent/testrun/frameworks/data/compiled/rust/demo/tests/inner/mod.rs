#[test]
fn inside() {
    assert!(true);
}
