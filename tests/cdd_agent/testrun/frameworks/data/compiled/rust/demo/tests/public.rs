use demo::add;

mod inner;

#[test]
fn adds_in_public() {
    assert_eq!(add(2, 2), 4);
}

#[test]
fn fails_in_public() {
    assert_ne!(add(2, 2), 4);
}
