//! What is told apart from other files, and texts of work.

use super::*;
use crate::capture::OperatorWork;

fn verdict(bytes: &[u8]) -> Verdict {
    Chakra.recognise(&Head::new(bytes.to_vec(), false))
}

fn file(nodes: &[Node]) -> Vec<u8> {
    let mut bytes = GlobalMetadata { version: "0.0.4".into(), ..Default::default() }.encode_length_delimited_to_vec();
    nodes.iter().for_each(|node| bytes.extend(node.encode_length_delimited_to_vec()));
    bytes
}

#[test]
fn files_are_recognised_by_their_first_messages() {
    let node = Node { id: 7, name: "x".into(), kind: 4, data_deps: vec![1, 2], ..Node::default() };
    assert_eq!(verdict(&file(std::slice::from_ref(&node))), Verdict::Yes);
    // Without version and attributes the metadata are empty.
    let mut bare = vec![0];
    bare.extend(node.encode_length_delimited_to_vec());
    assert_eq!(verdict(&bare), Verdict::Yes);
    // A node that is longer than what was looked at.
    let long = file(&[Node { name: "x".repeat(100_000), ..node.clone() }]);
    assert_eq!(verdict(&long[..60_000]), Verdict::Maybe);
    for other in [
        &b""[..],
        b"\x00",
        b"\x03abc",
        b"\n\n\n\n",
        b"{\"a\": 1}",
        b"\x1f\x8b\x08\x00",
        b"MZ\x90\x00\x03",
        b"\x02\x08\x01",
    ] {
        assert_eq!(verdict(other), Verdict::No, "{other:?}");
    }
    // An attribute where the schema has a number.
    let mut wrong = file(&[]);
    wrong.extend([4, 0x1a, 2, 1, 1]);
    assert_eq!(verdict(&wrong), Verdict::No);
}

#[test]
fn texts_of_work_are_read_whole_or_not_at_all() {
    let read = |text: &str| work::parts(&"x".into(), text);
    let parts = read("gemm 2 3 4 1 bf16 5; memory 10 2; hold 99 0 1; copy h2d 8 2; set 4 1").expect("work");
    assert_eq!(parts.len(), 6);
    assert!(matches!(&parts[0].work, Some(OperatorWork::Products(all)) if all.len() == 5));
    for (text, layout) in
        [("gemm 2 3 4 1 bf16 5 tn", "tn"), ("gemm 2 3 4 1 bf16 5 nn", "nn"), ("gemm 2 3 4 1 bf16 5", "nn")]
    {
        let parts = read(text).expect("work");
        let Some(OperatorWork::Products(products)) = &parts[0].work else { panic!("{parts:?}") };
        assert!(products.iter().all(|product| product.layout.name() == layout), "{text}");
    }
    assert_eq!(parts[1].work, Some(OperatorWork::Traffic { bytes: 20, guessed: false, lasts_ns: None }));
    assert_eq!(parts[2].work, Some(OperatorWork::Held { duration_ns: 99, sms: None, times: 1 }));
    for wrong in [
        "",
        "gemm 2 3 4 1 bf16",
        "gemm 2 3 4 1 float 5",
        "gemm 2 3 4 1 bf16 5 up",
        "hold 1 2",
        "copy up 8 1",
        "set 4 0",
        "memory 1 99999999",
        "dance 1",
    ] {
        assert!(read(wrong).is_none(), "{wrong}");
    }
}
