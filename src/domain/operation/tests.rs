//! Every event in every state that can be reached, to a depth beyond all limits of the machine.

use super::*;
use std::collections::{HashSet, VecDeque};

const RETENTION: Duration = Duration::from_secs(3600);
const BEGIN: Timestamp = Timestamp::from_millis(1_000_000);

const EVENTS: [OperationEvent; 9] = [
    OperationEvent::Sending { overdue_at: Timestamp::from_millis(2_000_000) },
    OperationEvent::NotSent,
    OperationEvent::Applied,
    OperationEvent::Rejected,
    OperationEvent::Conflict,
    OperationEvent::Unclear,
    OperationEvent::NoReceiptYet,
    OperationEvent::ReceiptMissing,
    OperationEvent::ReceiptGone,
];

/// Events that can happen in a state: nothing is heard of what was never sent.
fn can_happen(progress: &OperationProgress, event: OperationEvent) -> bool {
    match progress.state {
        OperationState::Prepared => matches!(event, OperationEvent::Sending { .. }),
        OperationState::Sent => !matches!(
            event,
            OperationEvent::Sending { .. }
                | OperationEvent::NoReceiptYet
                | OperationEvent::ReceiptMissing
                | OperationEvent::ReceiptGone
        ),
        OperationState::Uncertain => !matches!(event, OperationEvent::NotSent | OperationEvent::Unclear),
        OperationState::Applied | OperationState::Rejected | OperationState::Conflict => true,
    }
}

/// Everything that can be reached, each progress once; times aside, which only grow.
fn reachable(mut visit: impl FnMut(&OperationProgress, OperationEvent, &OperationProgress, OperationNext)) {
    let key = |p: &OperationProgress| (p.state, p.attempts, p.looks.min(8), p.next_at.is_some(), p.sent_at.is_some());
    let first = OperationProgress::prepared(BEGIN);
    let mut known = HashSet::from([key(&first)]);
    let mut queue = VecDeque::from([first]);
    while let Some(progress) = queue.pop_front() {
        for event in EVENTS.into_iter().filter(|event| can_happen(&progress, *event)) {
            let (next, what) = progress.after(event, RETENTION, BEGIN);
            visit(&progress, event, &next, what);
            // A resend is decided upon here and begun by `Sending`.
            if what != OperationNext::Resend && next.attempts <= MAX_RESENDS + 2 && known.insert(key(&next)) {
                queue.push_back(next);
            }
        }
    }
}

#[test]
fn a_last_word_stays() {
    reachable(|before, event, after, what| {
        if before.is_final() {
            assert_eq!((before, what), (after, OperationNext::Done), "{event:?}");
        } else {
            assert_eq!(after.step, before.step + 1, "{before:?} {event:?}");
        }
    });
}

#[test]
fn whatever_is_not_final_is_looked_at_again() {
    reachable(|before, event, after, what| {
        let waits_for_its_run = after.state == OperationState::Prepared;
        let decided_to_resend = what == OperationNext::Resend;
        let looked_at = after.is_final() || after.next_at.is_some() || waits_for_its_run || decided_to_resend;
        assert!(looked_at, "{before:?} {event:?} {after:?}");
    });
}

#[test]
fn it_is_sent_again_only_on_the_providers_word_that_it_is_unknown_and_only_so_often() {
    let mut most = 0;
    reachable(|before, event, _, what| {
        if what == OperationNext::Resend {
            assert_eq!((before.state, event), (OperationState::Uncertain, OperationEvent::ReceiptMissing));
            assert!(before.attempts <= MAX_RESENDS);
            most = most.max(before.attempts);
        }
    });
    assert_eq!(most, MAX_RESENDS);
}

#[test]
fn nothing_is_sent_again_once_receipts_are_not_kept_any_more() {
    let sent = OperationProgress::prepared(BEGIN).after(EVENTS[0], RETENTION, BEGIN).0;
    let uncertain = sent.after(OperationEvent::Unclear, RETENTION, BEGIN).0;
    let just_before = BEGIN.plus(RETENTION / 2 - Duration::from_millis(1));
    assert_eq!(uncertain.after(OperationEvent::ReceiptMissing, RETENTION, just_before).1, OperationNext::Resend);
    let half = BEGIN.plus(RETENTION / 2);
    assert_eq!(uncertain.after(OperationEvent::ReceiptMissing, RETENTION, half).1, OperationNext::Done);
    assert_eq!(uncertain.after(OperationEvent::NoReceiptYet, RETENTION, half).1, OperationNext::Inspect);
    for event in [OperationEvent::ReceiptMissing, OperationEvent::NoReceiptYet] {
        let (after, what) = uncertain.after(event, RETENTION, BEGIN.plus(RETENTION));
        assert_eq!((after.state, after.next_at, what), (OperationState::Uncertain, None, OperationNext::Done));
    }
}

#[test]
fn a_post_that_never_left_makes_the_operation_as_if_it_had_not_been_sent() {
    let sent = OperationProgress::prepared(BEGIN).after(EVENTS[0], RETENTION, BEGIN).0;
    let (after, what) = sent.after(OperationEvent::NotSent, RETENTION, BEGIN);
    assert_eq!((after.state, after.attempts, after.sent_at), (OperationState::Prepared, 0, None));
    assert_eq!((after.next_at, what), (None, OperationNext::Done));
    // But one that did leave before stays uncertain.
    let again = sent.after(OperationEvent::Unclear, RETENTION, BEGIN).0.after(EVENTS[0], RETENTION, BEGIN).0;
    assert_eq!(again.attempts, 2);
    assert_eq!(again.after(OperationEvent::NotSent, RETENTION, BEGIN).0.state, OperationState::Uncertain);
}

#[test]
fn receipts_are_looked_at_after_growing_pauses() {
    let mut progress = OperationProgress::prepared(BEGIN).after(EVENTS[0], RETENTION, BEGIN).0;
    let mut pauses = Vec::new();
    for event in [OperationEvent::Unclear].into_iter().chain([OperationEvent::NoReceiptYet; 7]) {
        progress = progress.after(event, RETENTION, BEGIN).0;
        pauses.push(progress.next_at.expect("looked at again").since(BEGIN).as_millis());
    }
    assert_eq!(pauses, [500, 2_000, 8_000, 30_000, 120_000, 600_000, 600_000, 600_000]);
}
