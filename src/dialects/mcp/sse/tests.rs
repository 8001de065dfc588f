//! Every rule of the stream by example, and that no cut into chunks changes what is read.

use super::*;
use proptest::prelude::*;
use std::time::{Duration, Instant};

const LIMIT_BYTES: usize = 1000;

/// What comes of a stream that arrives in these chunks.
fn read_chunks<'a>(
    chunks: impl IntoIterator<Item = &'a [u8]>,
    limit_bytes: usize,
) -> (Vec<SseEvent>, Result<(), SseFault>) {
    let (mut reader, mut events) = (SseReader::new(limit_bytes), vec![]);
    for chunk in chunks {
        let result = reader.push(chunk);
        events.extend(reader.by_ref());
        if result.is_err() {
            assert_eq!(reader.push(b"data: more\n\n"), result, "a fault is final");
            assert_eq!(reader.next(), None);
            return (events, result);
        }
    }
    (events, Ok(()))
}

fn events(stream: impl AsRef<[u8]>) -> Vec<SseEvent> {
    let (events, result) = read_chunks([stream.as_ref()], LIMIT_BYTES);
    assert_eq!(result, Ok(()));
    events
}

fn fault(stream: impl AsRef<[u8]>) -> Option<SseFault> {
    read_chunks([stream.as_ref()], LIMIT_BYTES).1.err()
}

fn data(text: &str) -> SseEvent {
    SseEvent { data: text.to_owned(), ..SseEvent::default() }
}

#[test]
fn an_event_is_its_fields_up_to_a_blank_line() {
    let stream = "event: message\nid: 7\nretry: 1500\ndata: {\"a\":1}\n\n";
    let expected = SseEvent {
        event: Some("message".to_owned()),
        data: "{\"a\":1}".to_owned(),
        id: Some("7".to_owned()),
        retry_ms: Some(1500),
    };
    assert_eq!(events(stream), [expected]);
}

#[test]
fn every_line_end_counts_once() {
    for end in ["\n", "\r", "\r\n"] {
        let stream = ["data: a", "data: b", "", "data: c", "", ""].join(end);
        assert_eq!(events(&stream), [data("a\nb"), data("c")], "{end:?}");
    }
    assert_eq!(events("data: a\r\rdata: b\n\r\ndata: c\r\n\n"), [data("a"), data("b"), data("c")]);
}

#[test]
fn an_event_is_there_once_its_blank_line_is_and_not_before() {
    let mut reader = SseReader::new(LIMIT_BYTES);
    for part in ["data: a", "\r", "\nda", "ta: b\r\n"] {
        reader.push(part.as_bytes()).expect("a stream");
        assert_eq!(reader.next(), None);
    }
    // The LF of this CR may come late or never.
    reader.push(b"\r").expect("a stream");
    assert_eq!(reader.next(), Some(data("a\nb")));
    reader.push(b"\ndata: c\n\n").expect("a stream");
    assert_eq!(reader.next(), Some(data("c")));
    assert_eq!(reader.next(), None);
}

#[test]
fn what_is_cut_at_the_end_is_no_event() {
    for stream in ["data: a", "data: a\n", "data: a\r\n", "id: 1\n", "retry: 1\n", ""] {
        assert_eq!(events(stream), [], "{stream:?}");
    }
}

#[test]
fn one_leading_space_goes_and_a_colon_is_not_needed() {
    assert_eq!(events("data:a\n\ndata:  b \n\ndata: c:d: e\n\n"), [data("a"), data(" b "), data("c:d: e")]);
    assert_eq!(events("data\n\ndata\ndata\n\ndata:\ndata: x\ndata:\n\n"), [data(""), data("\n"), data("\nx\n")]);
}

#[test]
fn comments_and_unknown_fields_are_read_over() {
    assert_eq!(events(": ping\n\n:\n:data: x\ndata: a\n: b\ndataset: c\nDATA: d\n data: e\n: f\n\n"), [data("a")]);
    assert_eq!(events("event: ping\n\ndata: a\n\n"), [data("a")], "a type without data is forgotten");
}

#[test]
fn comments_do_not_count_however_long_they_are() {
    let long = "x".repeat(10 * LIMIT_BYTES);
    assert_eq!(events(format!(":{long}\ndata: a\n:{long}\r\n\n")), [data("a")]);
    assert_eq!(events(":\n".repeat(10 * LIMIT_BYTES) + "data: a\n\n"), [data("a")]);
}

#[test]
fn only_a_leading_byte_order_mark_is_passed_over() {
    assert_eq!(events("\u{feff}data: a\n\n"), [data("a")]);
    assert_eq!(events("\u{feff}:x\n\u{feff}data: a\ndata: b\n\n"), [data("b")]);
    assert_eq!(events("\u{feff}\u{feff}data: a\n\n"), []);
    assert_eq!(events("data: \u{feff}a\n\n"), [data("\u{feff}a")]);
    assert_eq!(events(b"\xef\xbb\ndata: a\n\n"), [data("a")], "the beginning of one is a line");
    assert_eq!(events(b"\xef\xbb:data: a\n\n"), []);
}

#[test]
fn an_id_stands_until_another_comes() {
    let stream = "id: 1\ndata: a\n\ndata: b\n\nid: 2\nid: 3\ndata: c\n\nid\ndata: d\n\n";
    let ids = events(stream).into_iter().map(|event| event.id).collect::<Vec<_>>();
    assert_eq!(ids, [Some("1".to_owned()), Some("1".to_owned()), Some("3".to_owned()), None]);
    assert_eq!(events("id: 1\nid: a\0b\ndata: a\n\n")[0].id.as_deref(), Some("1"), "a NUL makes it none");
    let longest = "x".repeat(MAX_ID_BYTES);
    let long = |id: &str| {
        let stream = format!("id: 1\ndata:\n\nid: {id}\ndata:\n\n");
        let (events, result) = read_chunks([stream.as_bytes()], 10 * MAX_ID_BYTES);
        assert_eq!(result, Ok(()));
        events[1].id.clone()
    };
    assert_eq!(long(&longest), Some(longest.clone()));
    assert_eq!(long(&(longest + "x")), None);
}

// A server that lets its clients resume begins with an id and no data.
#[test]
fn an_event_of_only_an_id_or_a_time_is_reported() {
    let id = Some("1".to_owned());
    let with_id = |retry_ms| SseEvent { id: id.clone(), retry_ms, ..SseEvent::default() };
    assert_eq!(events("id: 1\n\n"), [with_id(None)]);
    assert_eq!(events("id: 1\ndata:\n\n"), [with_id(None)]);
    assert_eq!(events("id: 1\n\nretry: 20\n\n\n\n"), [with_id(None), with_id(Some(20))]);
    assert_eq!(events("id\n\n"), [SseEvent::default()], "that it is taken back is of interest too");
    assert_eq!(events("id: a\0b\n\nretry: x\n\n"), [], "these say nothing");
}

#[test]
fn a_reconnection_time_is_digits() {
    let retry = |value: &str| events(format!("data: a\nretry:{value}\n\n"))[0].retry_ms;
    for (value, expected) in [
        ("0", Some(0)),
        (" 3000", Some(3000)),
        ("007", Some(7)),
        ("18446744073709551615", Some(u64::MAX)),
        ("18446744073709551616", Some(u64::MAX)),
        ("99999999999999999999999", Some(u64::MAX)),
        ("", None),
        ("-1", None),
        ("+1", None),
        ("1.5", None),
        ("1s", None),
        ("  1", None),
        ("\u{661}", None),
    ] {
        assert_eq!(retry(value), expected, "{value:?}");
    }
    assert_eq!(events("retry: 5\nretry: x\n\n")[0].retry_ms, Some(5));
}

#[test]
fn text_is_utf8_or_a_fault() {
    assert_eq!(events("data: \u{17e}\u{1f600}\n\n"), [data("\u{17e}\u{1f600}")]);
    for bytes in [&b"\xff"[..], b"\xc5", b"\xe2\x82", b"\xed\xa0\x80", b"\xc0\xaf"] {
        for field in ["data", "event", "id"] {
            let line = [field.as_bytes(), b": ", bytes, b"\n"].concat();
            assert_eq!(fault(&line), Some(SseFault::NotUtf8), "{field} {bytes:?}");
        }
        let ignored = [b": ", bytes, b"\n", bytes, b": x\nretry: ", bytes, b"\ndata: a\n\n"].concat();
        assert_eq!(events(ignored), [data("a")]);
    }
}

#[test]
fn what_came_before_a_fault_can_still_be_taken() {
    let (events, result) = read_chunks([&b"data: a\n\ndata: \xff\n\ndata: b\n\n"[..]], LIMIT_BYTES);
    assert_eq!((events, result), (vec![data("a")], Err(SseFault::NotUtf8)));
}

#[test]
fn an_event_of_exactly_the_limit_passes() {
    let too_large = Some(SseFault::TooLarge { limit_bytes: LIMIT_BYTES });
    let exact = "x".repeat(LIMIT_BYTES);
    assert_eq!(events(format!("data: {exact}\n\ndata: {exact}\n\n")), [data(&exact), data(&exact)]);
    assert_eq!(fault(format!("data: {exact}x\n\n")), too_large);
    assert_eq!(fault(format!("data:{exact}x\n\n")), too_large);
    assert_eq!(fault(format!("event: {exact}\ndata: x\n\n")), too_large);
    assert_eq!(fault(format!("event: {exact}\nevent: x\ndata: {}\n\n", &exact[1..])), None);
    // The break between two lines is data.
    let half = "x".repeat(LIMIT_BYTES / 2);
    assert_eq!(fault(format!("data: {half}\ndata: {}\n\n", &half[1..])), None);
    assert_eq!(fault(format!("data: {half}\ndata: {half}\n\n")), too_large);
    assert_eq!(fault("data\n".repeat(LIMIT_BYTES + 1)), None);
    assert_eq!(fault("data\n".repeat(LIMIT_BYTES + 2)), too_large);
}

#[test]
fn a_line_without_end_is_not_held() {
    for start in ["data: ", "id: ", "retry: ", "unknown", "\u{feff}data: "] {
        let mut reader = SseReader::new(LIMIT_BYTES);
        reader.push(start.as_bytes()).expect("a stream");
        let pushed = (0..LIMIT_BYTES).take_while(|_| reader.push(b"10 bytes..").is_ok()).count();
        assert!(pushed <= LIMIT_BYTES / 10, "{start}: {pushed} times 10 bytes were held");
        assert_eq!(reader.push(b"\n"), Err(SseFault::TooLarge { limit_bytes: LIMIT_BYTES }));
        assert_eq!(reader.line.capacity(), 0);
    }
}

#[test]
fn a_long_line_does_not_keep_its_room() {
    let mut reader = SseReader::new(1 << 20);
    reader.push(&[b"data: ", [b'x'; 500_000].as_slice()].concat()).expect("a stream");
    reader.push(b"\n\ndata: b\n").expect("a stream");
    assert!(reader.line.capacity() <= MAX_KEPT_LINE_BYTES, "{} bytes", reader.line.capacity());
}

/// Two million bytes, one by one. What looks at all bytes of an event again for each of them takes hours.
#[test]
fn a_stream_of_single_bytes_takes_linear_time() {
    const BYTES: usize = 2_000_000;
    let start = Instant::now();
    for pattern in ["x", "data:\n", "data: x\r\n\r\n", ":", "id: a\n\n"] {
        let stream = b"data: ".iter().chain(pattern.as_bytes().iter().cycle()).take(BYTES);
        let mut reader = SseReader::new(2 * BYTES);
        let mut count = 0;
        for byte in stream {
            reader.push(&[*byte]).expect("a stream");
            count += reader.by_ref().count();
        }
        assert!(count <= BYTES / 6);
    }
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
}

/// A long id under very many small events costs little until they are taken.
#[test]
fn a_repeated_id_is_held_once() {
    let mut reader = SseReader::new(LIMIT_BYTES);
    let stream = format!("id: {}\n\n{}", "x".repeat(LIMIT_BYTES - 10), "data\n\n".repeat(100));
    reader.push(stream.as_bytes()).expect("a stream");
    let ids: Vec<_> = reader.events.iter().filter_map(|event| event.id.clone()).collect();
    assert_eq!(ids.len(), 101);
    assert!(ids.iter().all(|id| Arc::ptr_eq(id, &ids[0])));
}

/// The standard's steps over a whole stream, as plainly as they can be written.
fn model(stream: &[u8], limit_bytes: usize) -> (Vec<SseEvent>, Result<(), SseFault>) {
    let too_large = Err(SseFault::TooLarge { limit_bytes });
    let text = stream.strip_prefix(BOM).unwrap_or(stream);
    let before = std::iter::once(&0).chain(text);
    let text: Vec<u8> = before.zip(text).filter(|pair| *pair != (&b'\r', &b'\n')).map(|(_, byte)| *byte).collect();
    let mut lines: Vec<&[u8]> = text.split(|byte| matches!(byte, b'\r' | b'\n')).collect();
    let unfinished = lines.pop().expect("at least one");
    let (mut events, mut last_id, mut event) = (vec![], None, SseEvent::default());
    let (mut has_data, mut is_of_interest, mut id) = (false, false, None);
    let is_long = |line: &[u8], data: &str| !line.starts_with(b":") && data.len() + line.len() > limit_bytes + 7;
    for line in lines {
        if line.is_empty() {
            last_id = id.take().unwrap_or(last_id);
            let done = std::mem::take(&mut event);
            if std::mem::take(&mut is_of_interest) {
                events.push(SseEvent {
                    event: done.event.filter(|name| !name.is_empty()),
                    id: last_id.clone(),
                    ..done
                });
            }
            has_data = false;
            continue;
        }
        if is_long(line, &event.data) {
            return (events, too_large);
        }
        let mut parts = line.splitn(2, |byte| *byte == b':');
        let (name, value) = (parts.next().expect("a line"), parts.next().unwrap_or_default());
        let value = value.strip_prefix(b" ").unwrap_or(value);
        let value = match std::str::from_utf8(value) {
            Ok(value) => value,
            Err(_) if [&b"data"[..], b"event", b"id"].contains(&name) => return (events, Err(SseFault::NotUtf8)),
            Err(_) => continue,
        };
        match name {
            b"data" => {
                let before = if std::mem::replace(&mut has_data, true) { event.data + "\n" } else { String::new() };
                (event.data, is_of_interest) = (before + value, true);
            }
            b"event" => event.event = Some(value.to_owned()),
            b"id" if !value.contains('\0') => {
                (id, is_of_interest) = (Some(Some(value.to_owned()).filter(|id| !id.is_empty())), true)
            }
            b"retry" if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) => {
                (event.retry_ms, is_of_interest) = (Some(value.parse().unwrap_or(u64::MAX)), true);
            }
            _ => {}
        }
        if event.data.len() + event.event.as_ref().map_or(0, String::len) > limit_bytes {
            return (events, too_large);
        }
    }
    let result = if is_long(unfinished, &event.data) { too_large } else { Ok(()) };
    (events, result)
}

const PIECES: &[&[u8]] = &[
    b"data",
    b"data",
    b"data: ",
    b"id",
    b"event",
    b"retry",
    b":",
    b":",
    b" ",
    b"\n",
    b"\n",
    b"\n\n",
    b"\r",
    b"\r\n",
    b"\r\n\r\n",
    b"\0",
    b"12",
    b"x",
    b"\xc5\xbe",
    b"\xf0\x9f\x98\x80",
    BOM,
    b"\xef",
    b"\xbb",
    b"\xff",
    b"xxxxxxxxxxxxxxxx",
];

/// Streams of what matters to the reader, in any order.
fn stream() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(proptest::sample::select(PIECES), 0..60).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_chunking_reads_the_same_as_the_standard_says(
        stream in stream(),
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..12),
        limit_bytes in prop_oneof![0..40_usize, Just(LIMIT_BYTES)],
    ) {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
        cuts.extend([0, stream.len()]);
        cuts.sort_unstable();
        let expected = model(&stream, limit_bytes);
        prop_assert_eq!(&read_chunks(cuts.windows(2).map(|cut| &stream[cut[0]..cut[1]]), limit_bytes), &expected);
        prop_assert_eq!(&read_chunks([&stream[..]], limit_bytes), &expected);
        prop_assert_eq!(&read_chunks(stream.chunks(1), limit_bytes), &expected);
    }
}
