//! A demo.

/// Adds.
///
/// ```
/// assert_eq!(demo::add(1, 1), 2);
/// ```
///
/// ```should_panic
/// demo::add(1, 1);
/// ```
pub fn add(a: i32, b: i32) -> i32 {
    a + b
}

pub fn later() -> i32 {
    todo!("multiply")
}

pub fn never() -> i32 {
    unimplemented!()
}

pub fn explode() -> i32 {
    panic!("boom")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adds() {
        assert_eq!(add(1, 1), 2);
    }

    #[test]
    fn adds_wrongly() {
        println!("printed by the test");
        assert_eq!(add(1, 1), 3, "one and one");
    }

    #[test]
    fn says_no() {
        assert!(add(1, 1) == 3);
    }

    #[test]
    fn is_to_do() {
        later();
    }

    #[test]
    fn is_not_there() {
        never();
    }

    #[test]
    fn explodes() {
        explode();
    }

    #[test]
    #[should_panic]
    fn panics() {
        add(1, 1);
    }

    #[test]
    #[should_panic(expected = "bang")]
    fn panics_otherwise() {
        explode();
    }

    #[test]
    #[ignore = "slow"]
    fn waits() {}

    #[test]
    fn unwraps() {
        let nothing: Option<i32> = None;
        nothing.unwrap();
    }

    #[test]
    fn returns_an_error() -> Result<(), String> {
        Err("no luck".into())
    }

    mod deeper {
        #[test]
        fn nested() {}
    }
}
