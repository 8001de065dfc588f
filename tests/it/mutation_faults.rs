//! Mutations while everything breaks: the provider resets, stalls, answers 5xx and garbage, and toolgate is killed at
//! random. What the provider really did is compared with what toolgate says, wish by wish.

use crate::support::agent_provider::{ReceiptProvider, mutation};
use crate::support::binary::Binary;
use crate::support::tenant::Tenant;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use toolgate::demo::agent_provider::{Fault, FaultPoint, What};

const WISHES: usize = 1_000;
const CLIENTS: usize = 24;
const TOOL_TIMEOUT: Duration = Duration::from_millis(400);
/// Longer than a call is waited for.
const STALL: Duration = Duration::from_millis(600);
/// toolgate lives so long between two kills, in milliseconds: drawn anew each time.
const LIVES_MS: std::ops::Range<u64> = 700..2_500;
/// A client that has no last word by then takes what it was told.
const CLIENT_PATIENCE: Duration = Duration::from_secs(90);

/// SplitMix64: what goes wrong is drawn, and can be drawn again.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % sides
    }
}

fn call_fault(dice: &mut Dice) -> Fault {
    match dice.roll(100) {
        0..5 => Fault::ResetBefore,
        5..11 => Fault::ResetAfter,
        11..13 => Fault::StallBefore(STALL),
        13..16 => Fault::StallAfter(STALL),
        16..19 => Fault::Late(STALL),
        19..22 => Fault::StatusBefore(503),
        22..25 => Fault::StatusAfter(500),
        25..30 => Fault::GarbageAfter,
        30..34 => Fault::BrokenEvidenceAfter,
        34..38 => Fault::PendingAfter,
        38..41 => Fault::PartialAfter,
        _ => Fault::None,
    }
}

fn receipt_fault(dice: &mut Dice) -> Fault {
    match dice.roll(100) {
        0..6 => Fault::ResetBefore,
        6..12 => Fault::StatusBefore(503),
        12..17 => Fault::GarbageAfter,
        17..20 => Fault::PendingAfter,
        20..23 => Fault::PartialAfter,
        // It is there, and the provider says that it is not: the same operation is sent again, and has no second effect.
        23..26 => Fault::StatusBefore(404),
        _ => Fault::None,
    }
}

/// toolgate as its clients see it: killed and started again behind their backs.
struct Moving {
    tenant: RwLock<Tenant>,
    stop: AtomicBool,
    restarts: AtomicUsize,
}

impl Moving {
    fn tenant(&self) -> Tenant {
        self.tenant.read().expect("no panic while writing").clone()
    }

    /// Kills and starts until it is told to stop; answers what is left running.
    fn keep_killing(&self, mut toolgate: Binary, folder: &TempDir, seed: u64) -> Binary {
        let mut dice = Dice(seed);
        while !self.stop.load(Ordering::Relaxed) {
            let life = Duration::from_millis(LIVES_MS.start + dice.roll(LIVES_MS.end - LIVES_MS.start));
            std::thread::sleep(life);
            toolgate.kill();
            toolgate = Binary::serve(folder);
            let mut tenant = self.tenant.write().expect("no panic while writing");
            tenant.client = toolgate.client().clone();
            self.restarts.fetch_add(1, Ordering::Relaxed);
        }
        toolgate
    }
}

/// Wants one thing once: the same request with the same key, until there is a last word. Answers the last thing heard.
fn insist(moving: &Moving, wish: usize) -> Value {
    let until = Instant::now() + CLIENT_PATIENCE;
    let body = json!({ "tool": "wish.grant", "args": { "wish": format!("wish-{wish}") } });
    let mut last = Value::Null;
    while Instant::now() < until {
        let request = moving.tenant().run_request(&body);
        let answer = request.header("Idempotency-Key", format!("key-{wish}")).try_send();
        match answer {
            Ok(answer) if matches!(answer.status, 200 | 202) => {
                last = answer.json();
                let never_left = last["status"] == "failed" && last["started"] == false;
                let open = matches!(last["status"].as_str(), Some("pending" | "uncertain"));
                if !open && !never_left {
                    return last;
                }
            }
            // Busy, or the endpoint rests: nothing was reserved.
            Ok(answer) => assert!(matches!(answer.status, 429 | 503), "{} {}", answer.status, answer.text()),
            // Nobody is there just now.
            Err(_) => {}
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    last
}

/// How a thousand wishes ended, by status.
#[derive(Debug, Default)]
struct Tally {
    completed: usize,
    uncertain: usize,
    lost: usize,
    twice: usize,
}

#[test]
fn a_thousand_mutations_happen_at_most_once_and_none_is_lost() {
    let provider = ReceiptProvider::of(vec![mutation("wish.grant", TOOL_TIMEOUT)]);
    let (dice, faults) = (Arc::new(Mutex::new(Dice(20_261_130))), Arc::new(AtomicUsize::new(0)));
    let folder = TempDir::new().expect("a temporary folder");
    let toolgate = Binary::serve(&folder);
    let tenant = toolgate.tenant("acme");
    tenant.post("/v1/endpoints", &provider.registration("wishes")).expect(201);
    provider.set_fault_plan({
        let (dice, faults) = (Arc::clone(&dice), Arc::clone(&faults));
        move |point: &FaultPoint| {
            let mut dice = dice.lock().expect("no panic while drawing");
            let fault = match point.what {
                What::Discovery => Fault::None,
                What::Call => call_fault(&mut dice),
                What::Receipt => receipt_fault(&mut dice),
            };
            faults.fetch_add(usize::from(fault != Fault::None), Ordering::Relaxed);
            fault
        }
    });
    let moving = Moving { tenant: RwLock::new(tenant), stop: AtomicBool::new(false), restarts: AtomicUsize::new(0) };
    let next = AtomicUsize::new(0);
    let heard: Mutex<HashMap<usize, Value>> = Mutex::default();
    let toolgate = std::thread::scope(|scope| {
        let killer = scope.spawn(|| moving.keep_killing(toolgate, &folder, 7));
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| {
                scope.spawn(|| {
                    loop {
                        let wish = next.fetch_add(1, Ordering::Relaxed);
                        if wish >= WISHES {
                            break;
                        }
                        let last = insist(&moving, wish);
                        heard.lock().expect("no panic while noting").insert(wish, last);
                    }
                })
            })
            .collect();
        clients.into_iter().for_each(|client| client.join().expect("a client ends"));
        moving.stop.store(true, Ordering::Relaxed);
        killer.join().expect("the killer ends")
    });
    let tenant = Tenant { client: toolgate.client().clone(), ..moving.tenant() };
    let tally = compare(&tenant, &provider, &heard.into_inner().expect("nobody holds it"));
    // The last line: what was done and what became of it.
    println!(
        "{WISHES} operations, {} faults, {} restarts, {} effects, {} uncertain, {} twice, {} lost",
        faults.load(Ordering::Relaxed),
        moving.restarts.load(Ordering::Relaxed),
        provider.effects_total(),
        tally.uncertain,
        tally.twice,
        tally.lost,
    );
    assert_eq!((tally.twice, tally.lost), (0, 0), "{tally:?}");
    assert_eq!(tally.completed + tally.uncertain, WISHES, "{tally:?}");
    assert!(tally.completed >= WISHES * 9 / 10, "receipts heal nearly everything: {tally:?}");
    assert!(faults.load(Ordering::Relaxed) > WISHES / 4, "it was quiet");
    assert!(moving.restarts.load(Ordering::Relaxed) > 5, "it lived too long");
}

/// What toolgate said last, and says now, against what the provider did.
fn compare(tenant: &Tenant, provider: &ReceiptProvider, heard: &HashMap<usize, Value>) -> Tally {
    let mut effects: HashMap<String, usize> = HashMap::new();
    for effect in provider.effects_log() {
        *effects.entry(effect.arguments["wish"].as_str().expect("a wish").to_owned()).or_default() += 1;
    }
    let mut tally = Tally::default();
    for wish in 0..WISHES {
        let last = heard.get(&wish).expect("every wish was heard of");
        let done = effects.get(&format!("wish-{wish}")).copied().unwrap_or_default();
        tally.twice += usize::from(done > 1);
        match last["status"].as_str() {
            Some("completed") => {
                tally.completed += 1;
                tally.lost += usize::from(done == 0);
            }
            Some("uncertain") => tally.uncertain += 1,
            // A pending one, one that failed although it was done, or none at all.
            _ => tally.lost += 1,
        }
        let recorded = tenant.tenant_run(last);
        let same = recorded["status"] == last["status"] || last["status"] == "uncertain";
        assert!(same, "a last word does not change: {last} became {recorded}");
    }
    tally
}
