//! The words of facts: one table of languages. Words between braces are filled in.
//!
//! A sentence is a label and a value with a colon between them, so that a provider's own words stand in it without
//! needing a gender, a case or an article.

/// The sentences of one language.
#[derive(Debug)]
pub(super) struct Words {
    /// Primary language subtag.
    pub(super) language: &'static str,
    /// An entity.
    pub(super) found: &'static str,
    /// A field of something.
    pub(super) value: &'static str,
    /// A field of something at some time.
    pub(super) value_as_of: &'static str,
    /// A reference.
    pub(super) reference: &'static str,
    /// An answer that holds all there is.
    pub(super) complete: &'static str,
    /// The same with the whole count.
    pub(super) complete_of: &'static str,
    /// An answer that leaves something out.
    pub(super) partial: &'static str,
    /// The same with the whole count.
    pub(super) partial_of: &'static str,
    /// A mutation that took effect.
    pub(super) applied: &'static str,
    /// One that did not.
    pub(super) rejected: &'static str,
    /// One whose outcome is open.
    pub(super) pending: &'static str,
    /// True.
    pub(super) yes: &'static str,
    /// False.
    pub(super) no: &'static str,
}

/// The words of a primary language, where the table has it.
pub(super) fn of_language(language: &str) -> Option<&'static Words> {
    TABLE.iter().find(|words| words.language == language)
}

/// English, for everybody else.
pub(super) const ENGLISH: &Words = &TABLE[0];

const TABLE: &[Words] = &[
    Words {
        language: "en",
        found: "Found: {what}.",
        value: "{field} of {what}: {value}.",
        value_as_of: "{field} of {what}: {value} (as of {time}).",
        reference: "Reference ({type}): {value}.",
        complete: "{scope}: complete, {returned} returned.",
        complete_of: "{scope}: complete, {returned} of {total} returned.",
        partial: "{scope}: not complete, {returned} returned.",
        partial_of: "{scope}: not complete, {returned} of {total} returned.",
        applied: "{action}: done, recorded {time}.",
        rejected: "{action}: refused, nothing was done.",
        pending: "{action}: not decided yet.",
        yes: "yes",
        no: "no",
    },
    Words {
        language: "ar",
        found: "تم العثور على: {what}.",
        value: "{field} لـ {what}: {value}.",
        value_as_of: "{field} لـ {what}: {value} (حتى {time}).",
        reference: "المرجع ({type}): {value}.",
        complete: "{scope}: كامل، عدد النتائج {returned}.",
        complete_of: "{scope}: كامل، عدد النتائج {returned} من {total}.",
        partial: "{scope}: غير كامل، عدد النتائج {returned}.",
        partial_of: "{scope}: غير كامل، عدد النتائج {returned} من {total}.",
        applied: "{action}: تم التنفيذ، سُجل في {time}.",
        rejected: "{action}: مرفوض، لم يُنفذ شيء.",
        pending: "{action}: لم يُحسم بعد.",
        yes: "نعم",
        no: "لا",
    },
    Words {
        language: "de",
        found: "Gefunden: {what}.",
        value: "{field} von {what}: {value}.",
        value_as_of: "{field} von {what}: {value} (Stand {time}).",
        reference: "Referenz ({type}): {value}.",
        complete: "{scope}: vollständig, {returned} geliefert.",
        complete_of: "{scope}: vollständig, {returned} von {total} geliefert.",
        partial: "{scope}: unvollständig, {returned} geliefert.",
        partial_of: "{scope}: unvollständig, {returned} von {total} geliefert.",
        applied: "{action}: ausgeführt, erfasst {time}.",
        rejected: "{action}: abgelehnt, nichts wurde ausgeführt.",
        pending: "{action}: noch nicht entschieden.",
        yes: "ja",
        no: "nein",
    },
    Words {
        language: "fr",
        found: "Trouvé : {what}.",
        value: "{field} de {what} : {value}.",
        value_as_of: "{field} de {what} : {value} (état du {time}).",
        reference: "Référence ({type}) : {value}.",
        complete: "{scope} : complet, {returned} renvoyés.",
        complete_of: "{scope} : complet, {returned} sur {total} renvoyés.",
        partial: "{scope} : incomplet, {returned} renvoyés.",
        partial_of: "{scope} : incomplet, {returned} sur {total} renvoyés.",
        applied: "{action} : effectué, enregistré {time}.",
        rejected: "{action} : refusé, rien n’a été effectué.",
        pending: "{action} : pas encore décidé.",
        yes: "oui",
        no: "non",
    },
    Words {
        language: "es",
        found: "Encontrado: {what}.",
        value: "{field} de {what}: {value}.",
        value_as_of: "{field} de {what}: {value} (a fecha de {time}).",
        reference: "Referencia ({type}): {value}.",
        complete: "{scope}: completo, {returned} devueltos.",
        complete_of: "{scope}: completo, {returned} de {total} devueltos.",
        partial: "{scope}: incompleto, {returned} devueltos.",
        partial_of: "{scope}: incompleto, {returned} de {total} devueltos.",
        applied: "{action}: hecho, registrado {time}.",
        rejected: "{action}: rechazado, no se hizo nada.",
        pending: "{action}: aún sin decidir.",
        yes: "sí",
        no: "no",
    },
    Words {
        language: "it",
        found: "Trovato: {what}.",
        value: "{field} di {what}: {value}.",
        value_as_of: "{field} di {what}: {value} (al {time}).",
        reference: "Riferimento ({type}): {value}.",
        complete: "{scope}: completo, {returned} restituiti.",
        complete_of: "{scope}: completo, {returned} di {total} restituiti.",
        partial: "{scope}: incompleto, {returned} restituiti.",
        partial_of: "{scope}: incompleto, {returned} di {total} restituiti.",
        applied: "{action}: eseguito, registrato {time}.",
        rejected: "{action}: rifiutato, nulla è stato eseguito.",
        pending: "{action}: non ancora deciso.",
        yes: "sì",
        no: "no",
    },
    Words {
        language: "pt",
        found: "Encontrado: {what}.",
        value: "{field} de {what}: {value}.",
        value_as_of: "{field} de {what}: {value} (em {time}).",
        reference: "Referência ({type}): {value}.",
        complete: "{scope}: completo, {returned} devolvidos.",
        complete_of: "{scope}: completo, {returned} de {total} devolvidos.",
        partial: "{scope}: incompleto, {returned} devolvidos.",
        partial_of: "{scope}: incompleto, {returned} de {total} devolvidos.",
        applied: "{action}: feito, registado {time}.",
        rejected: "{action}: recusado, nada foi feito.",
        pending: "{action}: ainda não decidido.",
        yes: "sim",
        no: "não",
    },
    Words {
        language: "nl",
        found: "Gevonden: {what}.",
        value: "{field} van {what}: {value}.",
        value_as_of: "{field} van {what}: {value} (stand {time}).",
        reference: "Referentie ({type}): {value}.",
        complete: "{scope}: volledig, {returned} geleverd.",
        complete_of: "{scope}: volledig, {returned} van {total} geleverd.",
        partial: "{scope}: niet volledig, {returned} geleverd.",
        partial_of: "{scope}: niet volledig, {returned} van {total} geleverd.",
        applied: "{action}: uitgevoerd, vastgelegd {time}.",
        rejected: "{action}: geweigerd, er is niets uitgevoerd.",
        pending: "{action}: nog niet beslist.",
        yes: "ja",
        no: "nee",
    },
    Words {
        language: "pl",
        found: "Znaleziono: {what}.",
        value: "{field} ({what}): {value}.",
        value_as_of: "{field} ({what}): {value} (stan na {time}).",
        reference: "Numer referencyjny ({type}): {value}.",
        complete: "{scope}: komplet, zwrócono {returned}.",
        complete_of: "{scope}: komplet, zwrócono {returned} z {total}.",
        partial: "{scope}: niekompletne, zwrócono {returned}.",
        partial_of: "{scope}: niekompletne, zwrócono {returned} z {total}.",
        applied: "{action}: wykonano, zapisano {time}.",
        rejected: "{action}: odrzucono, nic nie wykonano.",
        pending: "{action}: jeszcze nie rozstrzygnięto.",
        yes: "tak",
        no: "nie",
    },
    Words {
        language: "cs",
        found: "Nalezeno: {what}.",
        value: "{field} ({what}): {value}.",
        value_as_of: "{field} ({what}): {value} (stav k {time}).",
        reference: "Reference ({type}): {value}.",
        complete: "{scope}: úplné, vráceno {returned}.",
        complete_of: "{scope}: úplné, vráceno {returned} z {total}.",
        partial: "{scope}: neúplné, vráceno {returned}.",
        partial_of: "{scope}: neúplné, vráceno {returned} z {total}.",
        applied: "{action}: provedeno, zaznamenáno {time}.",
        rejected: "{action}: odmítnuto, nic nebylo provedeno.",
        pending: "{action}: zatím nerozhodnuto.",
        yes: "ano",
        no: "ne",
    },
    Words {
        language: "tr",
        found: "Bulundu: {what}.",
        value: "{what} – {field}: {value}.",
        value_as_of: "{what} – {field}: {value} ({time} itibarıyla).",
        reference: "Referans ({type}): {value}.",
        complete: "{scope}: tam, {returned} sonuç.",
        complete_of: "{scope}: tam, toplam {total} içinden {returned} sonuç.",
        partial: "{scope}: eksik, {returned} sonuç.",
        partial_of: "{scope}: eksik, toplam {total} içinden {returned} sonuç.",
        applied: "{action}: yapıldı, kayıt zamanı {time}.",
        rejected: "{action}: reddedildi, hiçbir şey yapılmadı.",
        pending: "{action}: henüz karara bağlanmadı.",
        yes: "evet",
        no: "hayır",
    },
];

/// Fills a template in one pass, so that braces in what is filled in mean nothing.
pub(super) fn fill(template: &str, parts: &[(&str, &str)]) -> String {
    let mut sentence = String::with_capacity(template.len() + 64);
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        sentence.push_str(before);
        let (name, behind) = after.split_once('}').unwrap_or((after, ""));
        sentence.push_str(parts.iter().find(|(part, _)| *part == name).map_or("", |(_, text)| text));
        rest = behind;
    }
    sentence.push_str(rest);
    sentence
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sentence_of_every_language_has_its_blanks() {
        for words in TABLE {
            for (template, blanks) in [
                (words.found, &["what"][..]),
                (words.value, &["field", "what", "value"]),
                (words.value_as_of, &["field", "what", "value", "time"]),
                (words.reference, &["type", "value"]),
                (words.complete, &["scope", "returned"]),
                (words.complete_of, &["scope", "returned", "total"]),
                (words.partial, &["scope", "returned"]),
                (words.partial_of, &["scope", "returned", "total"]),
                (words.applied, &["action", "time"]),
                (words.rejected, &["action"]),
                (words.pending, &["action"]),
            ] {
                assert_eq!(template.matches('{').count(), blanks.len(), "{}: {template}", words.language);
                for blank in blanks {
                    assert!(template.contains(&format!("{{{blank}}}")), "{}: {blank} in {template}", words.language);
                }
            }
        }
    }

    #[test]
    fn what_is_filled_in_is_not_filled_in_again() {
        assert_eq!(fill("{a} and {b}", &[("a", "{b}"), ("b", "2")]), "{b} and 2");
    }
}
